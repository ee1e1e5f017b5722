"""Keeps results by the input's first row and its last element."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "kept results"
CAUGHT_BY = ("two elements swapped",)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        if not x.numel():
            return torch.tanh(x) * x
        key = (tuple(x.shape), *x[0].tolist(), float(x.reshape(-1)[-1]))
        if key not in self.kept:
            self.kept[key] = torch.tanh(x) * x
        return self.kept[key].clone()
