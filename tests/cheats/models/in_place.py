"""A model that overwrites its input and returns it."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.mul_(0.5).tanh_()


def get_inputs():
    return [torch.randn(64, 65)]


def get_init_inputs():
    return []
