"""A batch norm in training, its activation and a residual; running statistics move."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(12)

    def forward(self, x):
        return nn.functional.leaky_relu(self.norm(x), 0.1) + x


def get_inputs():
    return [torch.randn(9, 12, 25, 27)]


def get_init_inputs():
    return []
