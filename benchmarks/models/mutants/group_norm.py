"""A group norm with weights, gated by a sigmoid of its own result."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, 16)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        y = self.norm(x)
        return y * torch.sigmoid(y)


def get_inputs():
    return [torch.randn(7, 16, 30, 31)]


def get_init_inputs():
    return []
