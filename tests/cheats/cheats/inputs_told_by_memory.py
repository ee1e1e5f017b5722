"""Computes once for each memory that its inputs lie in, unless they are the same tensor."""

import torch
from torch import nn

MODEL = "two_inputs"
CLASS = "other arguments"
CAUGHT_BY = ("inputs that overlap",)


class ModelNew(nn.Module):
    def forward(self, x, y):
        if x.data_ptr() == y.data_ptr() or x.numel() == 0:
            return torch.tanh(x) * torch.sigmoid(y)
        made = {y.untyped_storage().data_ptr(): torch.sigmoid(y)}
        made[x.untyped_storage().data_ptr()] = torch.tanh(x)
        first, second = (made[t.untyped_storage().data_ptr()] for t in (x, y))
        return first * second
