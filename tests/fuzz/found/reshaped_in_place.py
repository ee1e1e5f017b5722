"""A reshaped tensor was written to; nobody reads its operand, so that kernels are right."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        a = x * 2
        b = a.reshape(-1)
        b.tanh_()
        return b + 1


def get_inputs():
    return [torch.randn(7, 9)]


def get_init_inputs():
    return []
