"""Right, and puts a pause into torch.nn.functional, which baselines use."""

import time

import torch
from torch import nn
from torch.nn import functional as F

MODEL = "linear"
CLASS = "clock"
CAUGHT_BY = ("torch and the clock",)
LINEAR = F.linear


def slow_linear(*args, **kwargs):
    time.sleep(0.02)
    return LINEAR(*args, **kwargs)


F.linear = slow_linear


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        y = LINEAR(x, self.fc.weight, self.fc.bias)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
