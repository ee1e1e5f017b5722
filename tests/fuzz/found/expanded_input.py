"""The judge wrote other values to an expanded input, which cannot be written to."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x.sigmoid().exp() * x.tanh() - x.erf()


def get_inputs():
    return [torch.randn(1, 5).expand(3, 5)]


def get_init_inputs():
    return []
