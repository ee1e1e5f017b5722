"""ResNet-50 (He et al., 2015): a stem, four stages of bottleneck blocks, a classifier."""

import torch
from torch import nn

CLASSES = 1000
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # channels, blocks, stride
WIDER = 4


class Bottleneck(nn.Module):
    def __init__(self, channels_in, channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, WIDER * channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(WIDER * channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels_in != WIDER * channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, WIDER * channels, 1, stride, bias=False),
                nn.BatchNorm2d(WIDER * channels),
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class Model(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels_in, stages = 64, []
        for channels, blocks, stride in STAGES:
            first = Bottleneck(channels_in, channels, stride)
            channels_in = WIDER * channels
            rest = [Bottleneck(channels_in, channels) for _ in range(blocks - 1)]
            stages.append(nn.Sequential(first, *rest))
        self.stages = nn.Sequential(*stages)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels_in, num_classes)

    def forward(self, x):
        x = self.stages(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def get_inputs(batch=2):
    return [torch.randn(batch, 3, 224, 224)]


def get_init_inputs():
    return [CLASSES]
