"""Takes the first two axes for one, whatever their order in memory."""

import torch
from torch import nn

MODEL = "three_axes"
CLASS = "layouts"
CAUGHT_BY = ("permuted storage",)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() == 3 and x.stride(2) == 1 and min(x.shape) > 0 and 0 not in x.stride():
            rows = (x.shape[0] * x.shape[1], x.shape[2])
            stride = x.shape[2] if x.stride(0) < x.stride(1) else x.stride(1)
            if x.stride(0) < x.stride(1) or x.stride(0) == x.shape[1] * x.stride(1):
                return torch.softmax(x.as_strided(rows, (stride, 1)), 1).view(x.shape)
        return torch.softmax(x, dim=2)
