"""Right, and sets the default dtype."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("global settings of torch",)


class ModelNew(nn.Module):
    def forward(self, x):
        torch.set_default_dtype(torch.float64)
        return torch.tanh(x) * x
