"""Results require no gradients where the caller asks for none; the original's always do."""

import torch
from torch import nn

MODEL = "switched_on"
CLASS = "gradients"
SAID = "is a plain tensor instead of a tensor that requires gradients"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(64))

    def forward(self, x):
        return torch.tanh(x * self.scale) + 1
