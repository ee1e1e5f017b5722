"""Softmax that does not subtract the row's maximum."""

import torch
from torch import nn

MODEL = "softmax"
CLASS = "precision and numbers"
CAUGHT_BY = ("large values",)


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x)
        return e / e.sum(dim=1, keepdim=True)
