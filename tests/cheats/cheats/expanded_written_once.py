"""Computes the first row of what is expanded, and leaves the others zero."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "layouts"
CAUGHT_BY = ("expanded storage",)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * x
        if x.shape[0] > 1 and x.stride(0) == 0:
            y[1:] = 0
        return y
