"""Calls itself without end."""

from torch import nn

MODEL = "pointwise"
CAUGHT_BY = ("own inputs",)
SAID = "RecursionError"


class ModelNew(nn.Module):
    def forward(self, x):
        return self.forward(x)
