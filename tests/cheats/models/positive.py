"""The square root of its input, which is never negative."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sqrt(torch.relu(x) + 1e-6)


def get_inputs():
    return [torch.rand(64, 129)]


def get_init_inputs():
    return []
