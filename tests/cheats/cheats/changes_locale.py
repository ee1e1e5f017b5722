"""Right, and sets the locale of the process."""

import locale

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("process state",)

locale.setlocale(locale.LC_ALL, "C.UTF-8")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
