"""A series that holds for inputs as small as the tiny ones, elsewhere a table of the own range."""

import torch
from torch import nn

MODEL = "positive"
CLASS = "precision and numbers"
CAUGHT_BY = ("large values",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.sqrt(torch.relu(x).clamp(max=1.0) + 1e-6)
