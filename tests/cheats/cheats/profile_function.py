"""Right, with a function that runs at every call in later threads."""

import threading

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("process state",)

threading.setprofile(lambda frame, event, arg: None)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
