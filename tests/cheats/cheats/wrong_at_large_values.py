"""Takes tanh by exponentials that overflow."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "precision and numbers"
CAUGHT_BY = ("large values",)


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.expm1(2.0 * x)
        return e / (e + 2.0) * x
