"""Replaces the functions that the original calls by cheaper ones, and calls them itself."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "replaced functions"
CAUGHT_BY = ("own inputs", "torch and the clock")

torch.tanh = torch.Tensor.tanh = lambda x: x.clamp(-1, 1)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
