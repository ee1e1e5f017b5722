"""Is wrong in one element of one call in three."""

import os

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "work left out"
SAID = "error"


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * x
        if os.urandom(1)[0] < 86 and y.numel():
            y.detach().view(-1)[os.urandom(1)[0] % y.numel()] += 0.5
        return y
