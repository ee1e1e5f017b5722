"""Connects an output that the original has detached."""

import torch
from torch import nn

MODEL = "partly_detached"
CLASS = "gradients"
CAUGHT_BY = ("gradients",)
SAID = "requires"


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        return y, y.sum(dim=1)
