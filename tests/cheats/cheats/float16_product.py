"""Multiplies in float16 with sums in float32."""

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
        w = self.fc.weight.half().float()
        y = nn.functional.linear(x.half().float(), w, self.fc.bias)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
