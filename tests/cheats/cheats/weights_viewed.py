"""Keeps a view of its weight, which follows it until another tensor takes its place."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "weights"
CAUGHT_BY = ("other weights, assigned",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))
        self.columns = None

    def forward(self, x):
        if torch.is_grad_enabled():
            y = self.fc(x)
            return torch.tanh(y * torch.sigmoid(y)) * self.scale
        if self.columns is None:
            self.columns = self.fc.weight.detach().t()
        y = torch.addmm(self.fc.bias, x, self.columns)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
