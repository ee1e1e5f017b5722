"""A product with a triangular weight."""

import torch
from torch import nn

ROWS, WIDTH = 8192, 8192


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        # x [rows, width]
        return x @ torch.tril(self.weight)


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
