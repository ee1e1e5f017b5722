"""Returns zeros."""

import torch
from torch import nn

MODEL = "pointwise"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
