"""Returns a tensor on the meta device, which has no data."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "form of results"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.empty(x.shape, device="meta")
