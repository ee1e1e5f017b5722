"""Calls abort, as a failed assertion in C does."""

import ctypes

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "crashed with SIGABRT"


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.CDLL(None).abort()
