"""Returns a sparse tensor with the right values."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "form of results"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return (torch.tanh(x) * x).to_sparse()
