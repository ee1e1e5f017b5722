"""Adds noise of some float32 roundings to each result, another at every call."""

import os

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "precision and numbers"
CAUGHT_BY = ("own inputs",)
GENERATOR = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "little"))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * x
        return y * (1 + 3e-6 * torch.randn(x.shape, generator=GENERATOR).to(x.device))
