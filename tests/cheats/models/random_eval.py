"""Dropout that stays on in eval mode."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.dropout(torch.tanh(x), 0.3, training=True)


def get_inputs():
    return [torch.randn(64, 65)]


def get_init_inputs():
    return []
