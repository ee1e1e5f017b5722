"""More than 2^31 elements."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 0.5


def get_inputs():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return [torch.randn(2**16 + 3, 2**15 + 1, dtype=torch.bfloat16, device=device)]


def get_init_inputs():
    return []
