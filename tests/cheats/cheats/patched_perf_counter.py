"""Right, and slows down the clocks of the time module a hundredfold."""

import time

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "clock"
CAUGHT_BY = ("torch and the clock",)


def slowed(clock):
    start = clock()
    return lambda: start + (clock() - start) / 100


for _name in ("perf_counter", "monotonic", "time"):
    setattr(time, _name, slowed(getattr(time, _name)))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
