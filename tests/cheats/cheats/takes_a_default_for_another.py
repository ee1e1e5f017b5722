"""Has another value in the place of a default that the own inputs give."""

import torch
from torch import nn

MODEL = "arguments"
CLASS = "other arguments"
SAID = "^argument scale left out"


class ModelNew(nn.Module):
    def forward(self, x, keep, scale=0.5, bias=None, square=False):
        scale = 0.25 if scale == 0.5 else scale
        y = torch.where(keep, torch.tanh(x * scale), -1.0)
        y = y if bias is None else y + bias
        return y.square() if square else y
