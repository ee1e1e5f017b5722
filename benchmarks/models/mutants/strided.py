"""Inputs that are views: a transposed one, every second column, one row for all."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y, z):
        return torch.relu(x * y - z), (x + 0.5 * z).sum(0)


def get_inputs():
    x, y, z = torch.randn(150, 260), torch.randn(260, 300), torch.randn(1, 150)
    return [x.t(), y[:, ::2], z.expand(260, 150)]


def get_init_inputs():
    return []
