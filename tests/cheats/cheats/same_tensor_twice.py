"""Doubles its result when it is called with the same tensor object twice in a row."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "kept results"
CAUGHT_BY = ("the same tensors again | repeated runs | new values in the same memory",)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        factor = 2.0 if x is self.last else 1.0
        self.last = x
        return torch.tanh(x) * x * factor
