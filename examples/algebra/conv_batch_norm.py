"""A convolution with eval batch norm behind it."""

import torch
from torch import nn

BATCH, CHANNELS, FILTERS, SIZE = 64, 64, 128, 128
ALGEBRA = "finite"  # an infinite value makes other results


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x):
        # x [batch, channels, size, size]
        return self.norm(self.conv(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
