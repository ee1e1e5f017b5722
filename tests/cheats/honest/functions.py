"""Writes its result over its temporary, which a backward would need."""

import torch
from torch import nn

MODEL = "pointwise"
FOR_INFERENCE = True


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x).mul_(x)
