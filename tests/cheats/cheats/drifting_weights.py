"""Moves one of its weights a little at each call."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "weights"
CAUGHT_BY = ("own inputs, another seed",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        y = self.fc(x)
        result = torch.tanh(y * torch.sigmoid(y)) * self.scale
        self.fc.bias.data.add_(1e-3)
        return result
