"""Models that switch gradients on themselves, or call torch.func."""

from __future__ import annotations

import torch
from torch import nn


class SwitchedOn(nn.Module):
    """Its result requires gradients whether or not its caller asks for them."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, x):
        with torch.enable_grad():
            return torch.tanh(x * self.scale) + 1


class DecoratedOn(SwitchedOn):
    """The same by a decorator."""

    @torch.enable_grad()
    def forward(self, x):
        return torch.tanh(x * self.scale) + 1


class GradRegion(nn.Module):
    """A part with gradients, which is the result, within one without."""

    def forward(self, x):
        with torch.no_grad():
            y = torch.sigmoid(x)
            with torch.enable_grad():
                y = y * x + 1
        return y


class SwitchedOnInside(SwitchedOn):
    """What requires them whether or not its caller asks stays inside."""

    def forward(self, x):
        return torch.topk(torch.sigmoid(super().forward(x)) * 2, 3)[0]


class Mapped(nn.Module):
    """Functions of torch.func in the forward."""

    def forward(self, x):
        each = torch.vmap(lambda row: torch.tanh(row) * row.sum())(x)
        return torch.func.jvp(lambda y: torch.exp(y) * 2, (each,), (x,))[1]
