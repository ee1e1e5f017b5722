"""A block of a small language model: RMS norms, causal attention, a gated MLP."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LENGTH = 128, 4, 64


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * self.weight


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.project = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def attend(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            each.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.project(x.transpose(1, 2).reshape(batch, length, WIDTH))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def get_inputs(batch=4):
    return [torch.randn(batch, LENGTH, WIDTH)]


def get_init_inputs():
    return []
