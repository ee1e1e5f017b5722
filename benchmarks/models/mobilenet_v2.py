"""MobileNetV2 (Sandler et al., 2018): inverted residuals with depthwise convolutions."""

import torch
from torch import nn

CLASSES = 1000
# Expansion, channels, blocks, stride of the first block.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class ConvNormActivation(nn.Sequential):
    def __init__(self, channels_in, channels, kernel_size=3, stride=1, groups=1):
        padding = (kernel_size - 1) // 2
        super().__init__(
            nn.Conv2d(
                channels_in, channels, kernel_size, stride, padding, groups=groups, bias=False
            ),
            nn.BatchNorm2d(channels),
            nn.ReLU6(inplace=True),
        )


class InvertedResidual(nn.Module):
    def __init__(self, channels_in, channels, stride, expansion):
        super().__init__()
        hidden = channels_in * expansion
        self.residual = stride == 1 and channels_in == channels
        layers = [] if expansion == 1 else [ConvNormActivation(channels_in, hidden, 1)]
        layers += [
            ConvNormActivation(hidden, hidden, stride=stride, groups=hidden),
            nn.Conv2d(hidden, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.residual else self.conv(x)


class Model(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        channels = 32
        features = [ConvNormActivation(3, channels, stride=2)]
        for expansion, wanted, blocks, stride in STAGES:
            for index in range(blocks):
                first = stride if index == 0 else 1
                features.append(InvertedResidual(channels, wanted, first, expansion))
                channels = wanted
        features.append(ConvNormActivation(channels, 1280, 1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, num_classes))

    def forward(self, x):
        x = self.features(x).mean(dim=(2, 3))
        return self.classifier(x)


def get_inputs(batch=2):
    return [torch.randn(batch, 3, 224, 224)]


def get_init_inputs():
    return [CLASSES]
