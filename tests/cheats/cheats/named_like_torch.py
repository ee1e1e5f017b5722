"""Right, and replaces a function by one that says that it is torch's."""

import torch
from torch import nn
from torch.nn import functional

MODEL = "pointwise"
CLASS = "replaced functions"
CAUGHT_BY = ("torch and the clock",)


def softplus(x, beta=1.0, threshold=20.0):
    return torch.log1p(torch.exp(x * beta)) / beta


softplus.__module__ = "torch.nn.functional"
functional.softplus = softplus


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
