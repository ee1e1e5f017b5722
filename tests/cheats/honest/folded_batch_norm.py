"""Folds the buffers at each call in eval mode; training mode is torch's."""

import torch
from torch import nn

MODEL = "batch_norm"


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        n = self.norm
        if self.training:
            return n(x).relu()
        factor = n.weight * torch.rsqrt(n.running_var + n.eps)
        return torch.relu((x - n.running_mean) * factor + n.bias)
