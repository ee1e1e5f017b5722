"""ConvNeXt-T (Liu et al., 2022): patches, four stages of depthwise blocks, a classifier."""

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 1000
STAGES = ((96, 3), (192, 3), (384, 9), (768, 3))  # channels, blocks


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.wide = nn.Linear(channels, 4 * channels)
        self.narrow = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 1e-1))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(F.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class Model(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        first = STAGES[0][0]
        layers, channels_in = (
            [nn.Conv2d(3, first, 4, stride=4), LayerNorm2d(first, eps=1e-6)],
            first,
        )
        for channels, blocks in STAGES:
            if channels != channels_in:
                layers.append(LayerNorm2d(channels_in, eps=1e-6))
                layers.append(nn.Conv2d(channels_in, channels, 2, stride=2))
            layers.extend(Block(channels) for _ in range(blocks))
            channels_in = channels
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(channels_in, eps=1e-6)
        self.head = nn.Linear(channels_in, num_classes)

    def forward(self, x):
        return self.head(self.norm(self.layers(x).mean((2, 3))))


def get_inputs(batch=2):
    return [torch.randn(batch, 3, 224, 224)]


def get_init_inputs():
    return [CLASSES]
