"""A comparison that only NaN decides was always true in a CUDA kernel: so ptxas 13.0 has it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        size, square = x.abs(), x * x
        chosen = torch.where(-(size + 1).abs() <= 0, x, 2.0)
        return size > -1.5, square.abs() + 0.5 >= 0, chosen, square >= 0, x.exp2() > -1, -square < 1


def get_inputs():
    return [torch.randn(9, 33)]


def get_init_inputs():
    return []
