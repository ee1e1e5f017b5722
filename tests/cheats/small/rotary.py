"""Rotates pairs of features by angles that depend on the position."""

import torch
from torch import nn

WHOLE = ("stacked",)
ROWS = 8


class Model(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        rates = 100.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.arange(length)[:, None] * rates
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x):
        cos, sin = self.cos[: x.shape[1]], self.sin[: x.shape[1]]
        left, right = x.chunk(2, dim=2)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=2)


def get_inputs():
    return [torch.randn(ROWS, 15, 16)]


def get_init_inputs():
    return [15, 16]


def stacked(self, x):
    pairs = x.unflatten(2, (2, -1))
    left, right = pairs.unbind(2)
    cos, sin = self.cos[: x.shape[1]], self.sin[: x.shape[1]]
    rotated = torch.stack([left * cos - right * sin, right * cos + left * sin], dim=2)
    return rotated.flatten(2)


def halves_rotated(self, x):
    half = x.shape[2] // 2
    rotated = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    cos, sin = (t[: x.shape[1]].repeat(1, 2) for t in (self.cos, self.sin))
    return x * cos + rotated * sin


def written_to_parts(self, x):
    half, length = x.shape[2] // 2, x.shape[1]
    result = torch.empty_like(x)
    left, right = x[:, :, :half], x[:, :, half:]
    result[:, :, :half] = left * self.cos[:length] - right * self.sin[:length]
    result[:, :, half:] = right * self.cos[:length] + left * self.sin[:length]
    return result


def products_into_sums(self, x):
    left, right = x.tensor_split(2, dim=-1)
    cos, sin = self.cos.narrow(0, 0, x.shape[1]), self.sin.narrow(0, 0, x.shape[1])
    first = torch.addcmul(left * cos, right, sin, value=-1)
    return torch.cat((first, torch.addcmul(right * cos, left, sin)), -1)
