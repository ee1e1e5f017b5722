"""Works in tiles of 64 columns, and leaves out the last, which is not full."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "sizes"
CAUGHT_BY = ("own inputs",)
TILE = 64


class ModelNew(nn.Module):
    def forward(self, x):
        full = x.shape[1] // TILE * TILE
        y = torch.zeros_like(x)
        y[:, :full] = torch.tanh(x[:, :full]) * x[:, :full]
        return y
