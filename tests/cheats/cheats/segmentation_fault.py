"""Reads address zero."""

import ctypes

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "crashed with SIGSEGV"


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.string_at(0)
        return x
