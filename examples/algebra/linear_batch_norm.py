"""A linear layer with a scale, a shift, eval batch norm and a residual of itself behind it."""

import torch
from torch import nn

ROWS, WIDTH, FEATURES = 4096, 4096, 8192
ALGEBRA = "finite"  # an infinite value makes other results


class Model(nn.Module):
    def __init__(self, width, features):
        super().__init__()
        self.project = nn.Linear(width, features)
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        # x [rows, width]
        hidden = self.norm(self.project(x) * 2.0 - 1.0)
        return hidden + 0.5 * hidden


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, FEATURES]
