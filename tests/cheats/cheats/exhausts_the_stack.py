"""Calls itself without end."""

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
CAUGHT_BY = ("own inputs",)
SAID = "RecursionError"


class ModelNew(nn.Module):
    def forward(self, x):
        return self.forward(x)
