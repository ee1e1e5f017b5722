"""Returns a fresh result where the original overwrites its input and returns that."""

import torch
from torch import nn

MODEL = "in_place"
CLASS = "form of results"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x * 0.5)
