"""Returns a copy of the input."""

from torch import nn

MODEL = "wide_range"
CLASS = "work left out"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
