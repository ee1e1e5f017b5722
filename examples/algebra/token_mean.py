"""A feed-forward layer at every token, averaged over the tokens."""

import torch
from torch import nn

BATCH, LENGTH, WIDTH = 64, 512, 1024


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        # x [batch, length, width]
        hidden = nn.functional.gelu(self.up(x))
        return torch.tanh((self.down(hidden) * 0.5).mean(dim=1))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH]
