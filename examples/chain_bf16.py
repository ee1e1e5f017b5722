"""The chain of twelve elementwise operations (three inputs, two outputs) in bfloat16."""

import torch
from torch import nn

ROWS, COLUMNS = 4096, 16384


class Model(nn.Module):
    def forward(self, x, scale, shift):
        # x [rows, columns]; scale [columns]; shift [rows, 1]
        centred = x * scale + shift  # 1, 2
        gate = torch.sigmoid(centred)  # 3
        swish = centred * gate  # 4
        bent = torch.where(swish > 0.0, swish, 0.1 * swish)  # 5, 6, 7
        first = torch.tanh(bent) + x  # 8, 9
        second = torch.exp(-torch.abs(first))  # 10, 11, 12
        return first, second


def get_inputs():
    x = torch.randn(ROWS, COLUMNS, dtype=torch.bfloat16)
    scale = torch.randn(COLUMNS, dtype=torch.bfloat16)
    shift = torch.randn(ROWS, 1, dtype=torch.bfloat16)
    return [x, scale, shift]


def get_init_inputs():
    return []
