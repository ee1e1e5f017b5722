"""Draws its dropout mask from a generator of its own."""

import torch
from torch import nn

MODEL = "random_eval"
CLASS = "random state"
CAUGHT_BY = ("own inputs",)
GENERATOR = torch.Generator().manual_seed(5)


class ModelNew(nn.Module):
    def forward(self, x):
        keep = torch.rand(x.shape, generator=GENERATOR).to(x.device) >= 0.3
        return torch.tanh(x) * keep / 0.7
