"""Right, and leaves Python's garbage collector off."""

import gc

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("process state",)

gc.disable()


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
