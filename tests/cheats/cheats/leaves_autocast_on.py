"""Right, and leaves autocast switched on."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("global settings of torch",)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * x
        torch.set_autocast_enabled("cpu", True)
        return y
