"""Gives its weights gradients only where the input asks for one, too."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "gradients"
CAUGHT_BY = ("gradients of the parameters alone",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        w, b = self.fc.weight, self.fc.bias
        if not x.requires_grad:
            w, b = w.detach(), b.detach()
        y = nn.functional.linear(x, w, b)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
