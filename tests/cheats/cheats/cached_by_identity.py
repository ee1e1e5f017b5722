"""Keeps the result of the last tensor object it was called with."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "kept results"
CAUGHT_BY = ("the same tensors again | new values in the same memory",)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None, None

    def forward(self, x):
        if x is not self.last[0]:
            self.last = x, torch.tanh(x) * x
        return self.last[1].clone()
