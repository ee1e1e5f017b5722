"""Reads as many bytes as float32 has of whatever it is given."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "modes and dtypes"
CAUGHT_BY = ("in float64",)


class ModelNew(nn.Module):
    def forward(self, x):
        floats = x.contiguous().view(-1).view(torch.float32)[: x.numel()].view(x.shape)
        return (torch.tanh(floats) * floats).to(x.dtype)
