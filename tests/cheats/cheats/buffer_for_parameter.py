"""Holds a parameter as a buffer, which no optimiser would train."""

import torch
from torch import nn

MODEL = "linear"
PENDING = "parameters and buffers are not told apart"
CAUGHT_BY = ("same parameters from the same seed",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.register_buffer("scale", torch.ones(num_out))

    def forward(self, x):
        y = self.fc(x)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
