"""Residual blocks over frames and planes, as in R(2+1)D (Tran et al., 2018), and a classifier."""

import torch
from torch import nn

CLASSES = 101


class Block(nn.Module):
    def __init__(self, channels_in, channels, stride=1):
        super().__init__()
        self.plane = nn.Conv3d(
            channels_in, channels, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False
        )
        self.norm1 = nn.BatchNorm3d(channels)
        self.frames = nn.Conv3d(channels, channels, (3, 1, 1), 1, (1, 0, 0), bias=False)
        self.norm2 = nn.BatchNorm3d(channels)
        self.whole = nn.Conv3d(channels, channels, 3, padding=1, bias=False)
        self.norm3 = nn.BatchNorm3d(channels)
        self.relu = nn.ReLU()
        self.shortcut = None
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Conv3d(channels_in, channels, 1, (1, stride, stride), bias=False)

    def forward(self, x):
        identity = x if self.shortcut is None else self.shortcut(x)
        y = self.relu(self.norm1(self.plane(x)))
        y = self.relu(self.norm2(self.frames(y)))
        return self.relu(self.norm3(self.whole(y)) + identity)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv3d(3, 32, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
        self.norm = nn.BatchNorm3d(32)
        self.relu = nn.ReLU()
        self.blocks = nn.Sequential(Block(32, 64, 2), Block(64, 64), Block(64, 128, 2))
        self.head = nn.Linear(128, CLASSES)

    def forward(self, x):
        x = self.blocks(self.relu(self.norm(self.stem(x))))
        return self.head(x.mean((2, 3, 4)))


def get_inputs(batch=2):
    return [torch.randn(batch, 3, 8, 112, 112)]


def get_init_inputs():
    return []
