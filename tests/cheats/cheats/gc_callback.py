"""Right, with a function that runs at every collection of garbage."""

import gc

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("process state",)

CALLS = []
gc.callbacks.append(lambda phase, info: CALLS.append(phase))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
