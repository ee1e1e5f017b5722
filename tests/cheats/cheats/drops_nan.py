"""Makes NaN zero."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "precision and numbers"
CAUGHT_BY = ("NaN, infinities, signed zeros",)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * x
        return torch.where(y.isnan(), torch.zeros_like(y), y)
