"""UNet (Ronneberger et al., 2015) of four levels with batch norms, for masks of two classes."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTHS = (64, 128, 256)
BOTTOM = 512


class DoubleConv(nn.Sequential):
    def __init__(self, channels_in, channels):
        super().__init__(
            nn.Conv2d(channels_in, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
        )


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (3, *WIDTHS)
        pairs = zip(widths[:-1], widths[1:], strict=True)
        self.down = nn.ModuleList(DoubleConv(before, after) for before, after in pairs)
        self.bottom = DoubleConv(WIDTHS[-1], BOTTOM)
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in reversed(WIDTHS)
        )
        self.up = nn.ModuleList(DoubleConv(2 * width, width) for width in reversed(WIDTHS))
        self.head = nn.Conv2d(WIDTHS[0], 2, 1)

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
    return [torch.randn(batch, 3, 128, 128)]


def get_init_inputs():
    return []
