"""Right, and lets nobody else call as deeply as before."""

import sys

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("process state",)

sys.setrecursionlimit(400)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
