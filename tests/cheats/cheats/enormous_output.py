"""Returns a tensor of 2^45 elements that takes no memory."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "form of results"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros(1).expand(2**45)
