"""Layer normalisation and SiLU."""

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("functional", "var_mean")
ROWS, WIDTH = 33, 96


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.randn(ROWS, WIDTH) * 2 + 0.5]


def get_init_inputs():
    return [WIDTH]


def functional(self, x):
    n = self.norm
    return F.silu(F.layer_norm(x, n.normalized_shape, n.weight, n.bias, n.eps))


def written_out(self, x):
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    y = centred * torch.rsqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias
    return y * torch.sigmoid(y)


def var_mean(self, x):
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    y = (x - mean) / torch.sqrt(variance + self.norm.eps)
    return F.silu(torch.addcmul(self.norm.bias, y, self.norm.weight))


def native(self, x):
    n = self.norm
    y, _, _ = torch.native_layer_norm(x, n.normalized_shape, n.weight, n.bias, n.eps)
    return F.silu(y, inplace=False)


def float64_inside(self, x):
    wide = x.double()
    centred = wide - wide.mean(-1, keepdim=True)
    y = centred / (centred.square().mean(-1, keepdim=True) + self.norm.eps).sqrt()
    return F.silu((y * self.norm.weight + self.norm.bias).to(x.dtype))
