"""A step of a gated recurrent unit."""

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("written_out",)
ROWS, WIDTH = 19, 20


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.cell = nn.GRUCell(width, hidden)

    def forward(self, x, h):
        return self.cell(x, h)


def get_inputs():
    return [torch.randn(ROWS, WIDTH), torch.randn(ROWS, 28)]


def get_init_inputs():
    return [WIDTH, 28]


def written_out(self, x, h):
    c = self.cell
    gi, gh = F.linear(x, c.weight_ih, c.bias_ih), F.linear(h, c.weight_hh, c.bias_hh)
    (ri, zi, ni), (rh, zh, nh) = gi.chunk(3, 1), gh.chunk(3, 1)
    r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
    n = torch.tanh(ni + r * nh)
    return (1 - z) * n + z * h


def lerp(self, x, h):
    c = self.cell
    size = h.shape[1]
    gi = torch.addmm(c.bias_ih, x, c.weight_ih.t())
    gh = torch.addmm(c.bias_hh, h, c.weight_hh.t())
    r, z = torch.sigmoid(gi[:, : 2 * size] + gh[:, : 2 * size]).split(size, dim=1)
    n = torch.tanh(torch.addcmul(gi[:, 2 * size :], r, gh[:, 2 * size :]))
    return n + z * (h - n)


def one_product_for_two_gates(self, x, h):
    c, size = self.cell, h.shape[1]
    both = torch.cat([c.weight_ih, c.weight_hh], dim=1)[: 2 * size]
    bias = (c.bias_ih + c.bias_hh)[: 2 * size]
    r, z = torch.sigmoid(F.linear(torch.cat([x, h], 1), both, bias)).chunk(2, 1)
    inner = F.linear(x, c.weight_ih[2 * size :], c.bias_ih[2 * size :])
    outer = F.linear(h, c.weight_hh[2 * size :], c.bias_hh[2 * size :])
    return (1 - z) * torch.tanh(inner + r * outer) + z * h


def function_of_torch(self, x, h):
    c = self.cell
    return torch.gru_cell(x, h, c.weight_ih, c.weight_hh, c.bias_ih, c.bias_hh)
