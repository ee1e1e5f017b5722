"""Right, and leaves a temporary in its input."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "form of results"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * x
        x.detach().add_(1.0)
        return y
