"""Names its parameters otherwise."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "weights"
CAUGHT_BY = ("same parameters from the same seed",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.linear = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        y = self.linear(x)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
