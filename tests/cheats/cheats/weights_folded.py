"""Folds its weights in the constructor; load_state_dict changes nothing."""

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
        self.folded = [self.fc.weight.detach().clone().t(), self.fc.bias.detach().clone()]

    def forward(self, x):
        y = torch.addmm(self.folded[1], x, self.folded[0])
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
