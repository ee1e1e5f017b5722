"""Computes elementwise steps in float16."""

from torch import nn

MODEL = "wide_range"
CLASS = "precision and numbers"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        h = x.half()
        return (h / (1 + h.abs())).to(x.dtype)
