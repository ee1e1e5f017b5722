"""Right, and slows down every module of the process but its own class."""

import time

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "clock"
CAUGHT_BY = ("torch and the clock",)
CALL = nn.Module.__call__


def slow_call(self, *args, **kwargs):
    if not isinstance(self, ModelNew):
        time.sleep(0.02)
    return CALL(self, *args, **kwargs)


nn.Module.__call__ = slow_call


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
