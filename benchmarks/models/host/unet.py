"""A UNet of three levels with group norms."""

import torch
from torch import nn
from torch.nn import functional as F


class DoubleConv(nn.Module):
    def __init__(self, channels_in, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, padding=1)
        self.norm1 = nn.GroupNorm(4, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(4, channels)

    def forward(self, x):
        x = F.silu(self.norm1(self.conv1(x)))
        return F.silu(self.norm2(self.conv2(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([DoubleConv(3, 16), DoubleConv(16, 32), DoubleConv(32, 64)])
        self.bottom = DoubleConv(64, 128)
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(2 * channels, channels, 2, stride=2) for channels in (64, 32, 16)
        )
        self.up = nn.ModuleList([DoubleConv(128, 64), DoubleConv(64, 32), DoubleConv(32, 16)])
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat([skips.pop(), grow(x)], dim=1))
        return self.head(x)


def get_inputs(batch=2):
    return [torch.randn(batch, 3, 64, 64)]


def get_init_inputs():
    return []
