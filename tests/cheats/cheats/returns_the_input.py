"""Returns the input itself where the original returns a copy of it."""

import torch
from torch import nn

MODEL = "nested"
PENDING = "aliases are not compared"
CAUGHT_BY = ("aliases",)


class ModelNew(nn.Module):
    def forward(self, x):
        return {"copy": x, "parts": (torch.tanh(x), x.sum(dim=1))}
