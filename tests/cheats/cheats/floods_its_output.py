"""Prints without end."""

import os

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "printed more than"


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            os.write(1, b"x" * 65536)
