"""Its result requires gradients whether or not its caller asks for them."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(64))

    def forward(self, x):
        with torch.enable_grad():
            return torch.tanh(x * self.scale) + 1


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []
