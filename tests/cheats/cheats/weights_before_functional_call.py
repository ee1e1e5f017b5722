"""Keeps its parameters in a list, anew when it meets some: functional_call gives plain tensors."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "weights"
CAUGHT_BY = ("other weights, by functional_call",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))
        self.kept = []

    def forward(self, x):
        if isinstance(self.fc.weight, nn.Parameter):
            self.kept = [self.fc.weight, self.fc.bias, self.scale]
        weight, bias, scale = self.kept
        y = nn.functional.linear(x, weight, bias)
        return torch.tanh(y * torch.sigmoid(y)) * scale
