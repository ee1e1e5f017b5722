"""A small classifier of images: three convolutions with batch norms."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for wanted in (16, 32, 64):
            layers += [
                nn.Conv2d(channels, wanted, 3, padding=1, bias=False),
                nn.BatchNorm2d(wanted),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            ]
            channels = wanted
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, 10)

    def forward(self, x):
        return self.classifier(self.features(x).mean(dim=(2, 3)))


def get_inputs(batch=8):
    return [torch.randn(batch, 3, 32, 32)]


def get_init_inputs():
    return []
