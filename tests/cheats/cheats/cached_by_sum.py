"""Keeps results by the sum of the input, which another order of it shares."""

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
        key = (tuple(x.shape), round(float(x.double().sum()), 6))
        if key not in self.kept:
            self.kept[key] = torch.tanh(x) * x
        return self.kept[key].clone()
