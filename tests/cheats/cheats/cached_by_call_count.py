"""Computes the first three calls, then returns the last result."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "kept results"
CAUGHT_BY = ("normal values",)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_calls = 0

    def forward(self, x):
        self.num_calls += 1
        if self.num_calls <= 3:
            self.kept = torch.tanh(x) * x
        return self.kept.clone() if self.kept.shape == x.shape else torch.tanh(x) * x
