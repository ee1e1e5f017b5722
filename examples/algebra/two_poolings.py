"""Two average poolings in a row."""

import torch
from torch import nn

BATCH, CHANNELS, SIZE = 64, 64, 256


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool2d(2)

    def forward(self, x):
        # x [batch, channels, size, size]
        return self.pool(self.pool(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return []
