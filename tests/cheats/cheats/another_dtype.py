"""Returns 32-bit integers where the original returns 64-bit ones."""

import torch
from torch import nn

MODEL = "integers"
CLASS = "form of results"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return x.argmax(dim=1).to(torch.int32), (x > 0.5).sum(dim=1), x > 0
