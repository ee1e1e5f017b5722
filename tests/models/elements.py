"""Models of elementwise work: activations, dtypes, scalars, broadcasts, views, in-place writes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Activations(nn.Module):
    """Every activation, added up in order; the parameters of some are the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.prelu = nn.PReLU(24)
        self.all = nn.ModuleList(
            [
                nn.ReLU(),
                nn.ReLU6(),
                nn.LeakyReLU(0.2),
                nn.ELU(0.7),
                nn.SELU(),
                nn.CELU(1.3),
                nn.GELU(),
                nn.GELU("tanh"),
                nn.SiLU(),
                nn.Mish(),
                nn.Softplus(2.0, 10.0),
                nn.Softsign(),
                nn.Hardtanh(-0.5, 0.75),
                nn.Hardsigmoid(),
                nn.Hardswish(),
                nn.Threshold(0.1, -0.2),
                nn.LogSigmoid(),
                nn.Tanhshrink(),
                nn.Softshrink(0.3),
                nn.Hardshrink(0.4),
                nn.Sigmoid(),
                nn.Tanh(),
            ]
        )

    def forward(self, x):
        total = self.prelu(x)
        for activation in self.all:
            total = total + activation(x)
        return total


class Functions(nn.Module):
    """The functions of a pocket calculator, on arguments where each is defined."""

    def forward(self, x):
        inside = torch.sigmoid(x) * 0.98 + 0.01
        logs = torch.log(inside) + torch.log2(inside) + torch.log10(inside) + torch.log1p(inside)
        powers = torch.exp(x) + torch.exp2(x) + torch.expm1(x) + inside**0.3 + x**3 + x**-2.0
        arcs = torch.asin(inside) + torch.acos(inside) + torch.atan(x) + torch.atanh(inside)
        waves = torch.sin(x) + torch.cos(x) + torch.sinh(x) + torch.cosh(x) + torch.asinh(x)
        errors = torch.erf(x) + torch.erfc(x) + torch.rsqrt(inside) + torch.reciprocal(inside)
        return logs + powers, arcs + waves, errors


class Parts(nn.Module):
    """Rounding, comparison, choice, and what NaN and infinities do."""

    def forward(self, x, y):
        steps = torch.floor(x) + torch.ceil(x) * 2 + torch.round(y) * 3 + torch.trunc(y) * 5
        kept = torch.where(x > y, torch.fmod(x, 0.7), torch.remainder(y, 0.7))
        tied = torch.maximum(x, y) - torch.minimum(x, 0.5 * y)
        odd = torch.nan_to_num(torch.log(x), nan=-1.0, posinf=2.0, neginf=-2.0)
        sides = torch.sign(x) + torch.copysign(y, x) + torch.lerp(x, y, 0.25)
        return steps, kept.masked_fill(torch.isnan(torch.log(y)), 3.0), tied + odd, sides


class Clamps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Parameter(torch.linspace(-1, 0, 24))

    def forward(self, x, high):
        bounded = torch.clamp(x, self.low, high)
        return torch.clamp(torch.tanh(bounded), -1, 1) + F.relu6(x) - torch.clamp(x, min=0.25)


class Chain(nn.Module):
    """Three hundred operations in a row."""

    def forward(self, x):
        for step in range(100):
            x = torch.tanh(x * 1.01) + step * 1e-3
        return x


class Wide(nn.Module):
    """Twenty results from one input."""

    def forward(self, x):
        return [torch.sin(x * (1 + index)) + index for index in range(20)]


class Broadcasts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.column = nn.Parameter(torch.randn(6, 1))
        self.register_buffer("offset", torch.randn(10))
        self.register_buffer("single", torch.tensor(0.3))

    def forward(self, x, row):
        return (x + self.column * row - self.offset) * self.single, row * 2


class Integers(nn.Module):
    """Indices, masks and counters: exact to the bit."""

    def forward(self, ids, flags, bytes):
        mixed = (ids * 3 + 7) % 11 - ids // 4
        bits = (mixed & 12) | (ids ^ 5)
        chosen = torch.where(flags & (ids > 2), bits, -mixed)
        shifted = (chosen << 2) >> 1
        half = bytes.to(torch.int16) * 2 - 5
        return shifted, ~flags | (ids == 3), half.clamp(0, 90), bytes + 250, flags.sum(1) + 1


class Casts(nn.Module):
    def forward(self, x):
        low = x.half() * 1.5
        brain = (x + 1).bfloat16() + low.to(torch.bfloat16)
        whole = (x * 10).to(torch.int32)
        return low.float() + whole, brain * brain, (x > 0).to(torch.float64) * 3, x.double().sin()


class ThereAndBack(nn.Module):
    """To every type of integers, of whole numbers, and back: as quantising does."""

    def forward(self, x):
        whole = (x * 10).round().clamp(-120, 120)
        types = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
        return tuple(whole.to(each).float() / 10 for each in types)


class TwoHalves(nn.Module):
    """In 16 bits each operation of eager rounds; the kernels round at the end."""

    def forward(self, x, y):
        return torch.sigmoid(x) * y + F.gelu(y), (x * 1.5 - y).clamp(-1, 1), x.relu() + 1


class Scalars(nn.Module):
    """Python numbers as arguments, defaults and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = 1.25
        self.power = 2

    def forward(self, x, scale, *, bias=0.5, mode="up"):
        sign = 1 if mode == "up" else -1
        return (x * scale) ** self.power * self.gain + sign * bias


class Items(nn.Module):
    """Numbers read from tensors with .item()."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.tensor(0.7))

    def forward(self, x, shift):
        return torch.tanh(x / self.temperature.item()) + shift.item() * 2


class Zeros(nn.Module):
    """0-d tensors in and out."""

    def forward(self, a, b):
        return torch.exp(-a * a) * b + 1, a + b > 0


class Views(nn.Module):
    def forward(self, x):
        rows, length, width = x.shape
        turned = x.permute(0, 2, 1) * 2
        flat = torch.tanh(x.reshape(rows, length * width))
        joined = torch.cat((x[:, 1:], x[:, :1] * 3), dim=1) + 1
        stacked = torch.stack((x.sin(), x.cos()), dim=-1).flatten(1)
        padded = F.pad(x * 0.5, (1, 2), value=1.5) - 1
        rolled = torch.roll(x, 2, dims=2) - torch.flip(x, (1,))
        squeezed = (x[:, 0] + x[:, -1].unsqueeze(1).squeeze(1)).exp()
        return turned, flat, joined, stacked, padded, rolled, squeezed


class Patches(nn.Module):
    """Space to depth, a gain for each channel, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(12, 1, 1))

    def forward(self, x):
        n, c, h, w = x.shape
        cut = x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)
        deep = torch.tanh(cut.reshape(n, 4 * c, h // 2, w // 2) * self.gain)
        return F.pixel_shuffle(deep, 2) + x


class InPlace(nn.Module):
    """Writes to intermediates: the inputs stay as they are."""

    def forward(self, x):
        y = x * 2
        y.add_(1).mul_(x)
        y[:, 0] = 5
        y[:, 2:4] *= x[:, :2]
        z = y.clone()
        z.clamp_(max=4).sub_(y)
        view = z[:, 1:3]
        view.mul_(0.5)
        return y, z


class MaskedWrite(nn.Module):
    """In-place choice by a mask, and an accumulation into zeros."""

    def forward(self, x, mask):
        out = torch.zeros_like(x)
        out += x.exp()
        out.masked_fill_(mask, -1.0)
        return out.div_(3)


class Positions(nn.Module):
    """Tensors made in the forward: ranges, masks, one-hot, outer sums."""

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        near = (places[:, None] - places[None, :]).abs() <= 1
        decay = torch.exp(-0.1 * places.to(x.dtype))
        return x * decay, torch.where(near, x[:, :, None], 0.0), torch.full_like(x, 2.0) - x


class Doubles(nn.Module):
    def forward(self, x, y):
        return torch.sin(x) * torch.exp(-y * y) + torch.log1p(x * x), torch.atan2(x, y)
