"""Group normalisation of images and a hard tanh."""

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("functional",)
ROWS = 7


class Model(nn.Module):
    def __init__(self, num_groups, num_channels):
        super().__init__()
        self.norm = nn.GroupNorm(num_groups, num_channels)

    def forward(self, x):
        return F.hardtanh(self.norm(x), -1.5, 1.5)


def get_inputs():
    return [torch.randn(ROWS, 12, 9, 11)]


def get_init_inputs():
    return [3, 12]


def functional(self, x):
    n = self.norm
    return F.hardtanh(F.group_norm(x, n.num_groups, n.weight, n.bias, n.eps), -1.5, 1.5)


def written_out(self, x):
    n = self.norm
    groups = x.reshape(x.shape[0], n.num_groups, x[0].numel() // n.num_groups if len(x) else 1)
    variance, mean = torch.var_mean(groups, dim=2, keepdim=True, correction=0)
    y = ((groups - mean) * torch.rsqrt(variance + n.eps)).view(x.shape)
    y = y * n.weight[:, None, None] + n.bias[:, None, None]
    return F.hardtanh(y, -1.5, 1.5)


def as_layer_norm(self, x):
    n = self.norm
    groups = x.unflatten(1, (n.num_groups, -1))
    y = F.layer_norm(groups, groups.shape[2:], eps=n.eps).flatten(1, 2)
    return F.hardtanh(y * n.weight.view(-1, 1, 1) + n.bias.view(-1, 1, 1), -1.5, 1.5)
