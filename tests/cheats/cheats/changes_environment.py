"""Right, and has every process that is started later compute with one thread."""

import os

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("process state",)

os.environ["MKL_NUM_THREADS"] = "1"


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
