"""A linear layer whose weight is a product of two slim matrices."""

import torch
from torch import nn

ROWS, WIDTH, FEATURES, RANK = 4096, 4096, 8192, 64
ALGEBRA = "finite"  # an infinite value makes other results


class Model(nn.Module):
    def __init__(self, width, features, rank):
        super().__init__()
        self.u = nn.Parameter(torch.randn(features, rank) / rank**0.5)
        self.v = nn.Parameter(torch.randn(rank, width) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        # x [rows, width]
        return nn.functional.gelu(nn.functional.linear(x, self.u @ self.v, self.bias))


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, FEATURES, RANK]
