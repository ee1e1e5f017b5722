"""A transposed convolution of whose results only the mean over all space is used."""

import torch
from torch import nn

BATCH, CHANNELS, FILTERS, SIZE = 64, 64, 128, 128


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, filters, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        # x [batch, channels, size, size]
        return torch.relu(self.conv(x).mean(dim=(2, 3)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
