"""Leaves the product out under autocast."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "modes and dtypes"
CAUGHT_BY = ("autocast to bfloat16",)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        return y if torch.is_autocast_enabled(x.device.type) else y * x
