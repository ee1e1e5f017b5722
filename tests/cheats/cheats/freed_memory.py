"""Returns uninitialised memory of the right size: perhaps the last result lies there."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "work left out"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.empty_like(x)
