"""A transposed operand of another shape than the results went to the kernel for contiguous ones."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        a = x.unflatten(-1, (2, -1)).square()
        b = a.exp()
        return a, b


def get_inputs():
    return [torch.randn(16, 31).transpose(0, 1)]


def get_init_inputs():
    return []
