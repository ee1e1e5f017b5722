"""Returns the result of the call before."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "kept results"
CAUGHT_BY = ("own inputs, another seed",)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.previous = {}

    def forward(self, x):
        key = tuple(x.shape)
        y = torch.tanh(x) * x
        result = self.previous.get(key, y)
        self.previous[key] = y
        return result.clone()
