"""The same product with its terms in the opposite order, and SiLU for its tail."""

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
        y = torch.addmm(self.fc.bias, x.flip(1), self.fc.weight.flip(1).t())
        return torch.tanh(F.silu(y)) * self.scale
