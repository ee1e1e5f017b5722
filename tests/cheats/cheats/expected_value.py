"""Returns the number that the results scatter about, without looking at the input."""

import torch
from torch import nn

MODEL = "reduction"
CLASS = "work left out"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ones(x.shape[0], dtype=x.dtype, device=x.device)
