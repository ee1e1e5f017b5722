"""ReLU over 1.6 billion elements: nothing to fused, the copy bandwidth is the limit."""

import torch
from torch import nn

ROWS, COLUMNS = 4096, 393216


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS) - 0.5]


def get_init_inputs():
    return []
