"""Reads its input's memory in order, whatever its strides."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "layouts"
CAUGHT_BY = ("transposed storage", "strided storage")


class ModelNew(nn.Module):
    def forward(self, x):
        if x.numel() and not torch.is_grad_enabled():
            x = torch.as_strided(x, x.shape, (x.shape[1], 1))
        return torch.tanh(x) * x
