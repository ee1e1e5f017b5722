"""Transposes the weights that named_parameters lists, by name: of tied ones it lists the first."""

import torch
from torch import nn

MODEL = "two_layers"
CLASS = "weights"
CAUGHT_BY = ("other weights, tied",)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.kept = {}

    def forward(self, x):
        self.kept |= dict(self.named_parameters())
        y = torch.relu(nn.functional.linear(x, self.kept["first.weight"], self.first.bias))
        return nn.functional.linear(y, self.kept["second.weight"], self.second.bias)
