"""Raises SystemExit in its forward."""

import sys

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
CAUGHT_BY = ("own inputs",)
SAID = "SystemExit"


class ModelNew(nn.Module):
    def forward(self, x):
        sys.exit(0)
