"""Writes beyond the end of its result."""

import ctypes

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "crashed with SIG"


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * x
        ctypes.memset(y.data_ptr() - 4096, 0xAA, y.numel() * 4 + 2**22)
        return y
