"""Right, and registers a slow kernel for an op that the baseline needs."""

import time

import torch
from torch import nn

MODEL = "linear"
CLASS = "clock"
CAUGHT_BY = ("torch and the clock",)


def slow_addmm(bias, left, right, beta=1, alpha=1):
    time.sleep(0.005)
    return beta * bias + alpha * torch.mm(left, right)


LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("addmm", slow_addmm, "CPU", allow_override=True)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        y = torch.mm(x, self.fc.weight.t()) + self.fc.bias
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
