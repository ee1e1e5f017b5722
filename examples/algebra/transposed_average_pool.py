"""A transposed convolution with an average pooling behind it."""

import torch
from torch import nn

BATCH, CHANNELS, FILTERS, SIZE = 64, 64, 128, 128
ALGEBRA = "finite"  # an infinite value makes other results


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, filters, 3, stride=2, padding=1, output_padding=1)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x):
        # x [batch, channels, size, size]
        return torch.relu(self.pool(self.conv(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
