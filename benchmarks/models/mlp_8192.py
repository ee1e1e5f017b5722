"""Three Linear layers of 8192 features with activations between them, as trained in float32."""

import torch
from torch import nn
from torch.nn import functional as F

ROWS, WIDTH = 1024, 8192


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.third = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = F.gelu(self.first(x))
        x = F.silu(self.second(x)) + x
        return torch.tanh(self.third(x))


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return []
