"""Opens files until no more can be had."""

import os

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
CAUGHT_BY = ("own inputs",)
KEPT = []


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            KEPT.append(os.open("/dev/null", os.O_RDONLY))
        return torch.tanh(x) * x
