"""Adds up a row one column after the other, with an error that grows with its length."""

import torch
from torch import nn

MODEL = "reduction"
CLASS = "precision and numbers"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cumsum(x * x, dim=1)[:, -1] / x.shape[1] * (1 + 2**-20)
