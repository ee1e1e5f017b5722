"""Three linear layers in a row without an activation."""

import torch
from torch import nn

ROWS, WIDTH, HIDDEN = 16384, 1024, 4096
ALGEBRA = "finite"  # an infinite value makes other results


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.first, self.second = nn.Linear(width, hidden), nn.Linear(hidden, hidden)
        self.third = nn.Linear(hidden, width)

    def forward(self, x):
        # x [rows, width]
        return torch.relu(self.third(self.second(self.first(x))))


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
