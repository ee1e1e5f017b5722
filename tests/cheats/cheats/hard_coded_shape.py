"""Reshapes to the model's own sizes."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "sizes"
CAUGHT_BY = ("batch of 1", "batch of 3", "batch of 97")


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.reshape(96 * 130)
        return (torch.tanh(y) * y).reshape(96, 130)
