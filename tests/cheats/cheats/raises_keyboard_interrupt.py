"""Raises KeyboardInterrupt, as if a person had pressed a key."""

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
CAUGHT_BY = ("own inputs",)
SAID = "KeyboardInterrupt"


class ModelNew(nn.Module):
    def forward(self, x):
        raise KeyboardInterrupt
