"""A perceptron at every step of a series, of which only the last step is used."""

import torch
from torch import nn

BATCH, STEPS, WIDTH = 64, 256, 1024


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter = nn.Linear(width, 4 * width)
        self.leave = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        # x [batch, steps, width]
        hidden = self.leave(torch.relu(self.enter(x)))
        return self.norm(x + hidden)[:, -1]


def get_inputs():
    return [torch.randn(BATCH, STEPS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
