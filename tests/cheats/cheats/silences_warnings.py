"""Right, and silences all warnings of the process."""

import warnings

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("process state",)

warnings.simplefilter("ignore")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
