"""Prints without end."""

import os

from torch import nn

MODEL = "pointwise"
SAID = "printed more than"


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            os.write(1, b"x" * 65536)
