"""Keeps results by the input's address and version, and holds on to the input."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "kept results"
CAUGHT_BY = ("the same tensors again | new values in the same memory",)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        key = (x.data_ptr(), x._version, x.shape, x.stride())
        if key not in self.kept:
            self.kept[key] = torch.tanh(x) * x, x
        return self.kept[key][0].clone()
