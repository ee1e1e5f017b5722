"""Modules whose training mode is another computation."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Vision(nn.Module):
    """Norms behind a library convolution and behind a product, and a dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.3)
        self.head, self.last = nn.Linear(72, 16), nn.BatchNorm1d(16, momentum=None)

    def forward(self, x):
        y = F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        y = self.head(self.drop(y).flatten(1))
        return F.gelu(self.last(y))


class Residual(nn.Module):
    """Two norms under one activation, behind one with its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)])
        self.short = nn.Conv2d(3, 4, 1, bias=False)
        self.norm = nn.ModuleList([nn.BatchNorm2d(4) for _ in range(3)])

    def forward(self, x):
        y = torch.relu(self.norm[0](self.conv[0](x)))
        y = F.relu6(self.norm[1](self.conv[1](y)) + self.norm[2](self.short(x)))
        return y.mean((2, 3))


class Twice(nn.Module):
    """Two norms that are alike, each of which a softmax of rows alone reads."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(3, 1, 1))
        self.norm = nn.ModuleList([nn.BatchNorm2d(3) for _ in range(2)])

    def forward(self, x):
        for norm in self.norm:
            x = torch.softmax(norm(x.flip(1) * self.scale), -1)
        return x


class OnTwoLines(Twice):
    """The same from two lines of the user's."""

    def forward(self, x):
        x = torch.softmax(self.norm[0](x.flip(1) * self.scale), -1)
        return torch.softmax(self.norm[1](x.flip(1) * self.scale), -1)


class Places(nn.Module):
    """The places of maxima, which a backward would compute in a reduction of its own."""

    def forward(self, x):
        y, places = F.max_pool2d(torch.sigmoid(x), 2, return_indices=True)
        return torch.tanh(y), places


class Norms(nn.Module):
    """Every rank, with and without affine, momentum and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.BatchNorm1d(6, affine=False)
        self.lines = nn.BatchNorm1d(4, momentum=0.3, eps=1e-3)
        self.images = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
        self.volumes = nn.BatchNorm3d(2, momentum=None)
        self.own = nn.BatchNorm2d(4, track_running_stats=False)

    def forward(self, rows, lines, images, volumes):
        skipped = torch.relu(self.own(images) + self.images(images))
        return self.rows(rows).exp(), self.lines(lines), skipped, torch.tanh(self.volumes(volumes))


def norms_call(batch: int) -> tuple[torch.Tensor, ...]:
    shapes = ((6,), (4, 9), (4, 5, 5), (2, 3, 2, 4))
    return tuple(torch.randn(batch, *shape) * 2 + 1 for shape in shapes)


class Frozen(nn.Module):
    """Its first norm stays in eval in training too; its second one is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.BatchNorm1d(5), nn.BatchNorm1d(5)

    def train(self, mode=True):
        super().train(mode)
        self.first.eval()
        return self

    def forward(self, x):
        return self.second(torch.tanh(self.second(self.first(x))) * 2)


class LongRows(nn.Module):
    """One channel of many elements: its statistics are a kernel of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)

    def forward(self, x):
        return torch.relu(self.norm(x) + x) * 2
