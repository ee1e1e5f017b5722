"""A form of the same function that cancels where the input is small."""

import torch
from torch import nn

MODEL = "wide_range"
CLASS = "precision and numbers"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.sign(x) * (1.0 - 1.0 / (1.0 + x.abs()))
