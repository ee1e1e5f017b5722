"""Cuts one of its outputs off."""

import torch
from torch import nn

MODEL = "nested"
CLASS = "gradients"
CAUGHT_BY = ("gradients",)
SAID = "requires"


class ModelNew(nn.Module):
    def forward(self, x):
        return {"copy": x.clone(), "parts": (torch.tanh(x), x.detach().sum(dim=1))}
