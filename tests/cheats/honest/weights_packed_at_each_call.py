"""Lays its weight and bias out anew, as one matrix, at each call."""

import torch
from torch import nn
from torch.nn import functional as F

MODEL = "linear"


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        packed = torch.cat([self.fc.weight, self.fc.bias[:, None]], dim=1)
        y = F.linear(torch.cat([x, x.new_ones(x.shape[0], 1)], dim=1), packed)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
