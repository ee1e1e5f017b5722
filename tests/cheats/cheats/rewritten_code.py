"""Right, and exchanges the code of a function of torch, whose object stays."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "replaced functions"
CAUGHT_BY = ("torch and the clock",)


def slower(self, x):
    return torch.tanh(x.clone())


nn.Tanh.forward.__code__ = slower.__code__


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
