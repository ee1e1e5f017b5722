"""Ends its process with exit code 0 when it is imported."""

import os

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "ended the process with exit code 0"

os._exit(0)


class ModelNew(nn.Module):
    def forward(self, x):
        return x
