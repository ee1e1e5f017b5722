"""Right, and gives every linear layer of the process another forward."""

import torch
from torch import nn
from torch.nn import functional

MODEL = "linear"
CLASS = "replaced functions"
CAUGHT_BY = ("torch and the clock",)


def forward_of_linear(self, x):
    return functional.linear(x, self.weight, self.bias)


nn.Linear.forward = forward_of_linear


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        y = self.fc(x)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
