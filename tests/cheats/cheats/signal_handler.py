"""Right, and answers a signal of the process itself."""

import signal

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("process state",)

signal.signal(signal.SIGTERM, lambda number, frame: None)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
