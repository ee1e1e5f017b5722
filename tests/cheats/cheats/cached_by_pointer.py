"""Keeps results by the address of the input, which it holds on to."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "kept results"
CAUGHT_BY = ("new values in the same memory | normal values | repeated runs",)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        key = (x.data_ptr(), x.shape, x.stride())
        if key not in self.kept:
            self.kept[key] = torch.tanh(x) * x, x
        return self.kept[key][0].clone()
