"""Returns its result on the host."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "GPU and streams"
CAUGHT_BY = ("own inputs",)
DEVICE = "cuda"


class ModelNew(nn.Module):
    def forward(self, x):
        return (torch.tanh(x) * x).cpu()
