"""Counts in float16, which is exact to 2048 only, with a threshold in bfloat16."""

import torch
from torch import nn

MODEL = "integers"
CLASS = "precision and numbers"
CAUGHT_BY = ("own inputs | normal values | own inputs, another seed",)


class ModelNew(nn.Module):
    def forward(self, x):
        h = x.bfloat16()
        return h.argmax(dim=1), (h > 0.5).sum(dim=1), x > torch.zeros_like(x)
