"""Registers another kernel for an op of torch, below every Python function."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "replaced functions"
CAUGHT_BY = ("own inputs",)

LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("tanh", lambda x: x.clamp(-1, 1), "CPU", allow_override=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
