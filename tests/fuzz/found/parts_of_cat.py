"""Two parts of a tensor that hold the same values are two places in memory."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        b = 1 - x
        first, _, last = torch.chunk(torch.cat([b, x, b], dim=1), 3, dim=-1)
        return last, first.squeeze(0)


def get_inputs():
    return [torch.randn(7, 5)]


def get_init_inputs():
    return []
