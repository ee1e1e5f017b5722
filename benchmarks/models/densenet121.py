"""DenseNet-121 (Huang et al., 2017): each layer reads the results of all before it."""

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 1000
GROWTH, STEM, BOTTLENECK = 32, 64, 4
BLOCKS = (6, 12, 24, 16)


class DenseLayer(nn.Module):
    def __init__(self, channels_in):
        super().__init__()
        hidden = BOTTLENECK * GROWTH
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, hidden, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(hidden)
        self.conv2 = nn.Conv2d(hidden, GROWTH, 3, padding=1, bias=False)

    def forward(self, features):
        x = torch.cat(features, 1)
        x = self.conv1(F.relu(self.norm1(x)))
        return self.conv2(F.relu(self.norm2(x)))


class DenseBlock(nn.Module):
    def __init__(self, channels, num_layers):
        super().__init__()
        self.layers = nn.ModuleList(
            DenseLayer(channels + index * GROWTH) for index in range(num_layers)
        )

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class Transition(nn.Sequential):
    def __init__(self, channels_in, channels):
        super().__init__(
            nn.BatchNorm2d(channels_in),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels_in, channels, 1, bias=False),
            nn.AvgPool2d(2),
        )


class Model(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        stages, channels = [], STEM
        for index, num_layers in enumerate(BLOCKS):
            stages.append(DenseBlock(channels, num_layers))
            channels += num_layers * GROWTH
            if index < len(BLOCKS) - 1:
                stages.append(Transition(channels, channels // 2))
                channels //= 2
        self.stem = nn.Sequential(
            nn.Conv2d(3, STEM, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(STEM),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x):
        x = self.stages(self.stem(x))
        x = F.adaptive_avg_pool2d(F.relu(self.norm(x)), 1)
        return self.classifier(torch.flatten(x, 1))


def get_inputs(batch=2):
    return [torch.randn(batch, 3, 224, 224)]


def get_init_inputs():
    return [CLASSES]
