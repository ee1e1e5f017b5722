"""Gives its results in a ring of 24 buffers."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "kept results"
CAUGHT_BY = ("many results stay",)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.rings = {}

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.tanh(x) * x
        ring = self.rings.setdefault((x.shape, x.dtype), [])
        if len(ring) < 24:
            ring.append(torch.tanh(x).mul_(x))
        else:
            ring.append(torch.tanh(x, out=ring.pop(0)).mul_(x))
        return ring[-1]
