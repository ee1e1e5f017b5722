"""Makes infinities the largest finite number."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "precision and numbers"
CAUGHT_BY = ("NaN, infinities, signed zeros",)


class ModelNew(nn.Module):
    def forward(self, x):
        return (torch.tanh(x) * x).clamp(-3.4028234e38, 3.4028234e38)
