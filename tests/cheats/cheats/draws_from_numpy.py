"""Draws a number from NumPy's generator."""

import numpy
import torch
from torch import nn

MODEL = "pointwise"
CLASS = "random state"
CAUGHT_BY = ("random state",)


class ModelNew(nn.Module):
    def forward(self, x):
        numpy.random.rand()
        return torch.tanh(x) * x
