"""Makes subnormal numbers zero."""

import torch
from torch import nn

MODEL = "wide_range"
CLASS = "precision and numbers"
PENDING = "errors below the least normal number do not count"
CAUGHT_BY = ("tiny values | NaN, infinities, signed zeros",)


class ModelNew(nn.Module):
    def forward(self, x):
        x = torch.where(x.abs() < 1.1754944e-38, torch.zeros_like(x), x)
        return x / (1.0 + x.abs())
