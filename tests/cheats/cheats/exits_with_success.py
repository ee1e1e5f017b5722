"""Ends its process with exit code 0 in its forward."""

import os

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "ended the process with exit code 0"


class ModelNew(nn.Module):
    def forward(self, x):
        os._exit(0)
