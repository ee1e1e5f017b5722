"""Works row by row, in blocks whose number depends on the shape."""

import torch
from torch import nn

MODEL = "pointwise"


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[0] < 2:
            return torch.tanh(x) * x
        return torch.cat([torch.tanh(part) * part for part in x.split(7)])
