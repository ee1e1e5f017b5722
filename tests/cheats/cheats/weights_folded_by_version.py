"""Folds its weights anew when their version counter moves, which a write through .data does not."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "weights"
CAUGHT_BY = ("other weights, in place",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))
        self.key, self.folded = None, None

    def forward(self, x):
        if torch.is_grad_enabled():
            y = self.fc(x)
            return torch.tanh(y * torch.sigmoid(y)) * self.scale
        w = self.fc.weight
        key = (w.data_ptr(), w._version)
        if key != self.key:
            self.key, self.folded = key, w.detach().clone().t()
        y = torch.addmm(self.fc.bias, x, self.folded)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
