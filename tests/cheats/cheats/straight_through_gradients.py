"""Passes the gradient of its output on as that of its input."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "gradients"
CAUGHT_BY = ("gradients",)


class Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return torch.tanh(y * torch.sigmoid(y))

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        return Through.apply(self.fc(x)) * self.scale
