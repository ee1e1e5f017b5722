"""The judge held a float64 result of bfloat16 steps to the digits of float64."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        a = torch.add(x, 1.5)
        return torch.float_power(a, 2)


def get_inputs():
    return [torch.randn(31, 3, 16, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
