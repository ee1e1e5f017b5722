"""Returns its result in another layout of memory."""

import torch
from torch import nn

MODEL = "pointwise"


class ModelNew(nn.Module):
    def forward(self, x):
        t = x.t()
        return (torch.tanh(t) * t).contiguous().t()
