"""Softmax over the last of three axes."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=2)


def get_inputs():
    return [torch.randn(12, 10, 33)]


def get_init_inputs():
    return []
