"""Blocks of a WaveNet (van den Oord et al., 2016): gated causal convolutions, each dilated twice as
far as the one before.
"""

import torch
from torch import nn
from torch.nn import functional as F

CHANNELS, SKIPPED, BLOCKS = 64, 128, 8


class Block(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.padding = dilation
        self.gated = nn.Conv1d(CHANNELS, 2 * CHANNELS, 2, dilation=dilation)
        self.residual = nn.Conv1d(CHANNELS, CHANNELS, 1)
        self.skip = nn.Conv1d(CHANNELS, SKIPPED, 1)

    def forward(self, x):
        filtered, gate = self.gated(F.pad(x, (self.padding, 0))).chunk(2, 1)
        y = torch.tanh(filtered) * torch.sigmoid(gate)
        return x + self.residual(y), self.skip(y)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, CHANNELS, 1)
        self.blocks = nn.ModuleList(Block(2**index) for index in range(BLOCKS))
        self.last = nn.Conv1d(SKIPPED, 256, 1)

    def forward(self, x):
        x, total = self.first(x), 0.0
        for block in self.blocks:
            x, skip = block(x)
            total = total + skip
        return self.last(F.relu(total))


def get_inputs(batch=2):
    return [torch.randn(batch, 1, 8192)]


def get_init_inputs():
    return []
