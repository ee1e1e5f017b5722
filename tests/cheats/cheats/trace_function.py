"""Right, and slows down Python itself by a trace function."""

import sys

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "clock"
CAUGHT_BY = ("torch and the clock",)


def trace(frame, event, arg):
    return trace


sys.settrace(trace)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
