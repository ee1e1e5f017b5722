"""Elementwise steps that take some milliseconds, for cheats that show in the timed runs only."""

import torch
from torch import nn

NUM_STEPS = 8


class Model(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(NUM_STEPS):
            y = torch.tanh(y) + x
        return y


def get_inputs():
    return [torch.randn(256, 513)]


def get_init_inputs():
    return []
