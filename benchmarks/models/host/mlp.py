"""A perceptron of four layers."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.GELU(),
            nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 10),
        )  # fmt: skip

    def forward(self, x):
        return torch.log_softmax(self.layers(x), dim=-1)


def get_inputs(batch=32):
    return [torch.randn(batch, 64)]


def get_init_inputs():
    return []
