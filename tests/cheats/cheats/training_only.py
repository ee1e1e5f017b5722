"""Uses the statistics of the batch in eval mode, too."""

import torch
from torch import nn
from torch.nn import functional as F

MODEL = "batch_norm"
CLASS = "modes and dtypes"
CAUGHT_BY = ("eval mode",)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        n = self.norm
        if self.training:
            return torch.relu(n(x))
        return torch.relu(F.batch_norm(x, None, None, n.weight, n.bias, True))
