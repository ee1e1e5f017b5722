"""A chain of products of matrices of very different sizes."""

import torch
from torch import nn

ROWS, WIDTH, WIDE, SLIM, LAST = 8192, 256, 8192, 128, 4096
ALGEBRA = "finite"  # an infinite value makes other results


class Model(nn.Module):
    def __init__(self, width, wide, slim, last):
        super().__init__()
        shapes = ((width, wide), (wide, slim), (slim, last))
        self.a, self.b, self.c = (nn.Parameter(torch.randn(s) / s[0] ** 0.5) for s in shapes)

    def forward(self, x):
        # x [rows, width]
        return x @ self.a @ self.b @ self.c


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, WIDE, SLIM, LAST]
