"""Uses the running statistics in training mode, too."""

import torch
from torch import nn

MODEL = "batch_norm"
CLASS = "modes and dtypes"
MODE = "eval"
CAUGHT_BY = ("training mode",)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        n = self.norm
        factor = n.weight / torch.sqrt(n.running_var + n.eps)
        return torch.relu((x - n.running_mean) * factor + n.bias)
