"""Normalisation by the root mean square, with a residual."""

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("functional", "einsum")
ROWS, WIDTH = 40, 64


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x + x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def get_inputs():
    return [torch.randn(ROWS, 3, WIDTH)]


def get_init_inputs():
    return [WIDTH]


def functional(self, x):
    return x + F.rms_norm(x, x.shape[-1:], self.weight, 1e-5)


def einsum(self, x):
    mean = torch.einsum("...i,...i->...", x, x).unsqueeze(-1) / x.shape[-1]
    return torch.addcmul(x, x / torch.sqrt(mean + 1e-5), self.weight)


def three_steps(self, x):
    variance = torch.mean(x * x, dim=-1, keepdim=True)
    y = x * (variance + 1e-5) ** -0.5
    return y * self.weight + x


def float64_inside(self, x):
    wide = x.double()
    factor = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
    return (wide + wide * factor * self.weight.double()).to(x.dtype)


def rows_first(self, x):
    rows = x.reshape(-1, x.shape[-1])
    inverse = rows.square().sum(1).div(rows.shape[1]).add(1e-5).rsqrt()
    return (rows + rows * inverse[:, None] * self.weight).view(x.shape)


class Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        inverse = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward(x, weight, inverse)
        return x * inverse * weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight, inverse = ctx.saved_tensors
        scaled, y = gradient * weight, x * inverse
        inner = inverse * (scaled - y * (scaled * y).mean(-1, keepdim=True))
        return inner, (gradient * y).flatten(0, -2).sum(0)


def own_backward(self, x):
    return x + Normalise.apply(x, self.weight)
