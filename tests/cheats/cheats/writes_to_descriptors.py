"""Writes rubbish to every descriptor that its process has open."""

import os

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "."


class ModelNew(nn.Module):
    def forward(self, x):
        for name in os.listdir("/proc/self/fd"):
            try:
                os.set_blocking(int(name), False)
                os.write(int(name), b"\xff\x00{]rubbish\n" * 50)
            except OSError:
                continue
        return torch.zeros_like(x)
