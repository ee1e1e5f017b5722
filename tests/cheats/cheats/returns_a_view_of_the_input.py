"""Returns a view of the input where the original returns a copy of it."""

import torch
from torch import nn

MODEL = "nested"
CLASS = "form of results"
CAUGHT_BY = ("aliases | own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return {"copy": x[:], "parts": (torch.tanh(x), x.sum(dim=1))}
