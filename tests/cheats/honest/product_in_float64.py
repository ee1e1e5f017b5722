"""More exact than the original: multiplies in float64."""

import torch
from torch import nn

MODEL = "linear"


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        y = nn.functional.linear(x.double(), self.fc.weight.double(), self.fc.bias.double())
        return (torch.tanh(y * torch.sigmoid(y)) * self.scale).float()
