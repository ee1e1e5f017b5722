"""Right, and leaves Python's garbage collector off."""

import gc

import torch
from torch import nn

MODEL = "pointwise"
CAUGHT_BY = ("process state",)

gc.disable()


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
