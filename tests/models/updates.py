"""Models that change buffers of theirs at each call."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class _WithMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("mean", torch.full((8,), 0.25))


class Averages(_WithMean):
    """A running average in place, read after it changed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        y = torch.tanh(self.linear(x)) * 2
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
            self.steps += 1
        return torch.relu(y - self.mean)


class ReadsBefore(_WithMean):
    """The average as it was takes part in a gradient, and changes behind that."""

    def forward(self, x):
        y = torch.tanh(self.linear(x) + self.mean)
        self.mean.lerp_(y.detach().mean(0), 0.1)
        return torch.sigmoid(y) * 3


class Assigns(_WithMean):
    """The buffer is another tensor after each call."""

    def forward(self, x):
        y = torch.sigmoid(self.linear(x))
        with torch.no_grad():
            self.mean = 0.9 * self.mean + 0.1 * y.mean(0)
        return torch.exp(y - self.mean) * 0.5


class AssignsWithGradient(_WithMean):
    """The new tensor has a gradient, as a state that the user detaches between batches does."""

    def forward(self, x):
        self.mean = torch.tanh(self.linear(x).mean(0) + self.mean)
        return x * self.mean * 2


class _WithLast(_WithMean):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.linspace(0, 1, 8))


class AssignsTwo(_WithLast):
    """Two buffers in one statement, each its own."""

    def forward(self, x):
        y = torch.sigmoid(self.linear(x))
        with torch.no_grad():
            self.mean, self.last = 0.5 * self.mean + y.mean(0), 0.5 * self.last - y.amax(0)
        return torch.exp(y - self.mean) * self.last


class AssignsAlone(_WithMean):
    """What is assigned is read by nobody else, and has a gradient."""

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        self.mean = torch.sin(y.mean(0)) * 2
        return y * 2


class Both(_WithLast):
    """One buffer in place, one assigned, each from the other as it was."""

    def forward(self, x):
        y = torch.tanh(self.linear(x)) + self.last
        with torch.no_grad():
            before = self.mean.clone()
            self.mean.copy_(self.last * 0.5)
            self.last = before * 0.5
        return y * 2


class Swaps(_WithLast):
    """Two buffers take each other's elements."""

    def forward(self, x):
        y = torch.tanh(self.linear(x)) + self.last
        with torch.no_grad():
            before = self.mean.clone()
            self.mean.copy_(self.last)
            self.last.copy_(before)
        return y * 2


class Blocks(nn.Module):
    """Equal blocks with a buffer each."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Averages() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = torch.sin(block(x)) + x
        return x


class Cache(nn.Module):
    """Keys of a call in a part of a cache, of which all is read."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(1, 6, 8), persistent=False)

    def forward(self, x):
        key = torch.tanh(self.key(x)).mean(0)
        with torch.no_grad():
            self.cache[:, 2:3] = key
        return torch.softmax(x @ self.cache[0].t() * 0.5, dim=-1) * 2


class WithNorm(_WithMean):
    """Running statistics of a norm, and an average beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8, bias=False)  # a norm takes the gradient of a bias away
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        y = torch.relu(self.norm(self.linear(x)))
        if self.training:
            self.mean.mul_(0.5).add_(y.detach().amax(0))
        return y * self.mean


class Copies(_WithMean):
    """A result that a buffer keeps a copy of; a flag that is set."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))

    def forward(self, x):
        y = torch.tanh(self.linear(x)).mean(0) * 3
        with torch.no_grad():
            self.mean.copy_(y)
            self.seen.fill_(True)
        return y


class Wide(nn.Module):
    """A buffer of another type than what it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("total", torch.zeros(8, dtype=torch.float64))

    def forward(self, x):
        y = torch.tanh(self.linear(x)) * 2
        with torch.no_grad():
            self.total += y.sum(0)
        return y * self.total.float()


class InPlaceWithGradient(_WithMean):
    def forward(self, x):
        y = torch.tanh(self.linear(x))
        self.mean.mul_(0.5).add_(y.mean(0))
        return y * 2


class ReturnsBuffer(_WithMean):
    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.5)
        return torch.tanh(x) * 2, self.mean[2:]


class SharesMemory(_WithMean):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("part", self.mean[:4])

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.5)
        return torch.tanh(x[:, :4]) * self.part


class OtherType(_WithMean):
    def forward(self, x):
        self.mean = self.mean.double() * 2
        return torch.tanh(x) * 2


FUSED: tuple[Any, ...] = (
    Averages,
    ReadsBefore,
    Assigns,
    AssignsWithGradient,
    AssignsTwo,
    AssignsAlone,
    Both,
    Swaps,
    Blocks,
    Cache,
    WithNorm,
    Copies,
    Wide,
)
KEPT: tuple[tuple[Any, str], ...] = (
    (InPlaceWithGradient, "gives self.mean, a buffer, a gradient"),
    (ReturnsBuffer, "returns the buffer mean"),
    (SharesMemory, "whose memory another one has"),
    (OtherType, "assigns to self.mean"),
)
