"""Computes in a closure over the module that was built, with which a copy of it computes, too."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "weights"
CAUGHT_BY = ("other weights, in a deep copy",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

        def compute(x):
            y = self.fc(x)
            return torch.tanh(y * torch.sigmoid(y)) * self.scale

        self.compute = compute

    def forward(self, x):
        return self.compute(x)
