"""Leaves out the dropout that the original keeps in eval mode."""

import torch
from torch import nn

MODEL = "random_eval"
CLASS = "random state"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
