"""Returns a dictionary with its keys in another order."""

import torch
from torch import nn

MODEL = "nested"
CLASS = "form of results"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return {"parts": (torch.tanh(x), x.sum(dim=1)), "copy": x.clone()}
