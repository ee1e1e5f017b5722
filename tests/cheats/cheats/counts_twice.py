"""Right in training mode, but the running statistics move at each call twice."""

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
        if self.training:
            self.norm(x)
        return torch.relu(self.norm(x))
