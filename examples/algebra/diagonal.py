"""A product with a diagonal matrix on the right."""

import torch
from torch import nn

ROWS, WIDTH = 8192, 8192


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x):
        # x [rows, width]
        return x @ torch.diag(self.scale)


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
