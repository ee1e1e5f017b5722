"""Folds its buffers at the first call."""

import torch
from torch import nn

MODEL = "batch_norm"
CLASS = "weights"
MODE = "eval"
CAUGHT_BY = ("other weights by load_state_dict",)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.folded = None

    def forward(self, x):
        if self.training:
            return torch.relu(self.norm(x))
        if self.folded is None:
            n = self.norm
            factor = (n.weight / torch.sqrt(n.running_var + n.eps)).detach()
            self.folded = n.running_mean.clone(), factor
        mean, factor = self.folded
        return torch.relu((x - mean) * factor + self.norm.bias)
