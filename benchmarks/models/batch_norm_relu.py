"""A batch norm of images, then a ReLU."""

import torch
from torch import nn

CHANNELS = 64


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs(batch=16):
    return [torch.randn(batch, CHANNELS, 56, 56)]


def get_init_inputs():
    return [CHANNELS]
