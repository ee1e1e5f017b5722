"""Reads memory from its start where the address is aligned."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "layouts"
CAUGHT_BY = ("storage with an offset",)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.is_contiguous() and x.data_ptr() % 16 == 0:
            x = x.as_strided(x.shape, x.stride(), 0)
        return torch.tanh(x) * x
