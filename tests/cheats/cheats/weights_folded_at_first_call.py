"""Folds its weights at the first call."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "weights"
CAUGHT_BY = ("other weights by load_state_dict",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))
        self.folded = None

    def forward(self, x):
        if self.folded is None:
            self.folded = self.fc.weight.detach().clone().t()
        y = torch.addmm(self.fc.bias, x, self.folded)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
