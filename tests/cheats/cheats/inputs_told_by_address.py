"""Computes once for each address that it is given."""

import torch
from torch import nn

MODEL = "two_inputs"
CLASS = "other arguments"
CAUGHT_BY = ("the same tensor twice",)


class ModelNew(nn.Module):
    def forward(self, x, y):
        made = {y.data_ptr(): torch.sigmoid(y)}
        made[x.data_ptr()] = torch.tanh(x)
        return made[x.data_ptr()] * made[y.data_ptr()]
