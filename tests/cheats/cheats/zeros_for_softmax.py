"""Returns zeros where every right value is so small that an absolute tolerance lets them pass."""

import torch
from torch import nn

MODEL = "softmax"
CLASS = "work left out"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
