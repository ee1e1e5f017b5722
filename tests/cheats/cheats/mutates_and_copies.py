"""Overwrites the input as the original does, but returns a copy where that returns the input."""

import torch
from torch import nn

MODEL = "in_place"
CLASS = "form of results"
CAUGHT_BY = ("aliases",)


class ModelNew(nn.Module):
    def forward(self, x):
        x.mul_(0.5).tanh_()
        return torch.clone(x)
