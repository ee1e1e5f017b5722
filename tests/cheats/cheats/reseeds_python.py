"""Seeds Python's generator anew."""

import random

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "random state"
CAUGHT_BY = ("random state",)


class ModelNew(nn.Module):
    def forward(self, x):
        random.seed(7)
        return torch.tanh(x) * x
