"""Reads from every descriptor of its process, so that requests are lost."""

import os
import threading

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "."
TIME_LIMIT_S = 6


class ModelNew(nn.Module):
    def forward(self, x):
        def read_all(descriptor):
            try:
                while os.read(descriptor, 1 << 16):
                    continue
            except OSError:
                return

        for name in os.listdir("/proc/self/fd"):
            threading.Thread(target=read_all, args=(int(name),), daemon=True).start()
        return torch.zeros_like(x)
