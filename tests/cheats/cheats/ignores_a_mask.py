"""Takes all of a mask for true, as it is in the own inputs."""

import torch
from torch import nn

MODEL = "arguments"
CLASS = "other arguments"
CAUGHT_BY = ("other booleans",)


class ModelNew(nn.Module):
    def forward(self, x, keep, scale=0.5, bias=None, square=False):
        y = torch.tanh(x * scale)
        y = y if bias is None else y + bias
        return y.square() if square else y
