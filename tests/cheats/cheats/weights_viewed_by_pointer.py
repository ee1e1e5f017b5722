"""Keeps a view of its weight until the parameter is another object; moved, it is the same one."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "weights"
CAUGHT_BY = ("other weights, moved",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))
        self.kept = {}

    def forward(self, x):
        w = self.fc.weight
        if torch.is_grad_enabled():
            y = self.fc(x)
            return torch.tanh(y * torch.sigmoid(y)) * self.scale
        if id(w) not in self.kept:
            self.kept = {id(w): w.detach().t()}
        y = torch.addmm(self.fc.bias, x, self.kept[id(w)])
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
