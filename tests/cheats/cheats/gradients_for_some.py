"""Gives its input a gradient, and cuts its parameters off."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "gradients"
CAUGHT_BY = ("gradients",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        y = nn.functional.linear(x, self.fc.weight.detach(), self.fc.bias.detach())
        return torch.tanh(y * torch.sigmoid(y)) * self.scale.detach()
