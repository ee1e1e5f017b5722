"""Has wrong gradients where some parameters are frozen and others are not."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "gradients"
CAUGHT_BY = ("gradients with some parameters frozen",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        flags = {p.requires_grad for p in self.parameters()}
        y = self.fc(x)
        if len(flags) > 1:
            y = y.detach() + (y - y.detach()) * 0.5
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
