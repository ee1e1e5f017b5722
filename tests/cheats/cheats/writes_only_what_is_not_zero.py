"""Leaves zeros unwritten, as if fresh memory were zero."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "work left out"
CAUGHT_BY = (
    "uninitialised memory filled with NaN | NaN, infinities, signed zeros | sparse values",
)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        mask = x != 0
        y[mask] = torch.tanh(x[mask]) * x[mask]
        return y
