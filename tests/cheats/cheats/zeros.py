"""Returns zeros."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "work left out"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
