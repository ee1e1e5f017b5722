"""Scaled dot-product attention under a mask of booleans that the heads share."""

import torch
from torch import nn
from torch.nn import functional as F

HEADS, LENGTH, HEAD_SIZE = 8, 512, 64


class Model(nn.Module):
    def forward(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def get_inputs(batch=2):
    q, k, v = (torch.randn(batch, HEADS, LENGTH, HEAD_SIZE) for _ in range(3))
    mask = torch.rand(batch, 1, LENGTH, LENGTH) < 0.9
    return [q, k, v, mask]


def get_init_inputs():
    return []
