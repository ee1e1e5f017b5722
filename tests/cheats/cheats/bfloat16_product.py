"""Multiplies in bfloat16."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "precision and numbers"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        w, b = self.fc.weight.bfloat16(), self.fc.bias.bfloat16()
        y = nn.functional.linear(x.bfloat16(), w, b).float()
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
