"""Seeds torch's generator anew."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "random state"
CAUGHT_BY = ("random state",)


class ModelNew(nn.Module):
    def forward(self, x):
        torch.manual_seed(7)
        return torch.tanh(x) * x
