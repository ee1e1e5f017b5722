"""Right, and puts a function of its own in the place of torch.linalg.solve."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "replaced functions"
CAUGHT_BY = ("torch and the clock",)

_solve = torch.linalg.solve
torch.linalg.solve = lambda a, b: _solve(a, b)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
