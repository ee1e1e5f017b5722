"""A layer norm with weights, its activation and a residual."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(384)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return x + nn.functional.gelu(self.norm(x))


def get_inputs():
    return [torch.randn(12, 16, 384)]


def get_init_inputs():
    return []
