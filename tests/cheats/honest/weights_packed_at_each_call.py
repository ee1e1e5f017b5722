"""Lays its weight out anew at each call."""

import torch
from torch import nn

MODEL = "linear"


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        packed = self.fc.weight.t().contiguous()
        y = torch.mm(x, packed) + self.fc.bias
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
