"""Overwrites its input as the original does, by another way, and returns it."""

import torch
from torch import nn

MODEL = "in_place"


class ModelNew(nn.Module):
    def forward(self, x):
        return x.copy_(torch.tanh(x * 0.5))
