"""A value that is centred, and averaged again."""

import torch
from torch import nn

ROWS, WIDTH = 16384, 16384


class Model(nn.Module):
    def forward(self, x):
        # x [rows, width]
        centred = x - x.mean(dim=1, keepdim=True)
        return centred.mean(dim=1) + 1.0


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return []
