"""Subtracts a running mean, which training moves."""

import torch
from torch import nn

WHOLE = ("lerp",)
ROWS, WIDTH = 23, 30


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(x.mean(dim=0), alpha=0.1)
                self.count += 1
        return x - self.mean


def get_inputs():
    return [torch.randn(ROWS, WIDTH) + 2]


def get_init_inputs():
    return [WIDTH]


def lerp(self, x):
    if self.training:
        self.mean.lerp_(x.detach().mean(0), 0.1)
        self.count.add_(1)
    return x.sub(self.mean)


def copied(self, x):
    if self.training:
        batch = x.detach().sum(dim=0) / x.shape[0]
        self.mean.copy_(0.9 * self.mean + 0.1 * batch)
        self.count.copy_(self.count + 1)
    return x - self.mean


@torch.no_grad()
def move(mean, count, x):
    mean *= 0.9
    mean += x.mean(dim=0) * 0.1
    count += 1


def own_function(self, x):
    if self.training:
        move(self.mean, self.count, x)
    return torch.add(x, self.mean, alpha=-1)
