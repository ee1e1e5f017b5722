"""Two products of one size, so that their weights may be tied."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def get_inputs():
    return [torch.randn(24, 56)]


def get_init_inputs():
    return [56]
