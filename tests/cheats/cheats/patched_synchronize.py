"""Right, and makes waiting for the device return at once."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "clock"
CAUGHT_BY = ("torch and the clock",)

torch.cuda.synchronize = lambda device=None: None


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
