"""Right, and makes CUDA events say that next to nothing passed between them."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "clock"
CAUGHT_BY = ("torch and the clock",)


class Event(torch.cuda.Event):
    def elapsed_time(self, end_event):
        return 1e-4


torch.cuda.Event = torch.Event = Event


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
