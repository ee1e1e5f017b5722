"""Leaves the product out in inference mode."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "modes and dtypes"
CAUGHT_BY = ("inference mode",)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        return y if torch.is_inference_mode_enabled() else y * x
