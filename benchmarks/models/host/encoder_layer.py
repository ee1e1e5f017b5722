"""A transformer's encoder layer, with its norms after the sums."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LENGTH = 128, 4, 32


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.expand = nn.Linear(WIDTH, 4 * WIDTH)
        self.contract = nn.Linear(4 * WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)

    def attend(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            each.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        x = F.scaled_dot_product_attention(q, k, v)
        return self.project(x.transpose(1, 2).reshape(batch, length, WIDTH))

    def forward(self, x):
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.contract(F.relu(self.expand(x))))


def get_inputs(batch=8):
    return [torch.randn(batch, LENGTH, WIDTH)]


def get_init_inputs():
    return []
