"""Allocates many blocks of the result's size, and returns the first that is not all zeros."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "work left out"
CAUGHT_BY = ("own inputs",)
NUM_BLOCKS = 64


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = [torch.empty_like(x) for _ in range(NUM_BLOCKS)]
        full = [b for b in blocks if b.isfinite().all() and 0 < b.abs().mean() < 1e3]
        return (full or blocks)[0].clone()
