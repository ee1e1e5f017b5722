"""Root mean square normalisation over the channels of an image, written out, and a gate."""

import torch
from torch import nn

CHANNELS, HEIGHT, WIDTH = 64, 256, 256


class Model(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)

    def forward(self, x):
        # x [batch, channels, height, width]
        rms = torch.sqrt(torch.mean(x * x, dim=1, keepdim=True) + self.eps)
        normed = x / rms * self.weight
        return normed * torch.sigmoid(normed)


def get_inputs():
    return [torch.randn(16, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, 1e-5]
