"""Softmax in its three steps."""

import torch
from torch import nn

MODEL = "softmax"


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(dim=1, keepdim=True))
        return e / e.sum(dim=1, keepdim=True)
