"""A Linear layer of 2048 to 2048 on 1024 rows, with a tail of pointwise operations."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.project = nn.Linear(features, features)

    def forward(self, x):
        x = self.project(x)
        x = x * torch.sigmoid(x)
        x = x / 2.0
        x = torch.clamp(x, min=-1.0, max=1.0)
        x = torch.tanh(x)
        return torch.clamp(x, min=-1.0, max=1.0)


def get_inputs():
    return [torch.randn(1024, 2048)]


def get_init_inputs():
    return [2048]
