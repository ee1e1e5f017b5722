"""Computes on the first call only, and returns that result ever after."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "kept results"
CAUGHT_BY = ("own inputs, another seed",)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        key = tuple(x.shape)
        if key not in self.kept:
            self.kept[key] = torch.tanh(x) * x
        return self.kept[key].clone()
