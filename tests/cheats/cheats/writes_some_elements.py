"""Writes all but a few elements of memory that nobody has cleared."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "work left out"
CAUGHT_BY = ("uninitialised memory filled with NaN",)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        y[:, :-1] = torch.tanh(x[:, :-1]) * x[:, :-1]
        return y
