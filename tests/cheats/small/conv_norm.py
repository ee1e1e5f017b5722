"""A convolution and batch normalisation, in eval mode."""

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("functional",)
ROWS = 6


class Model(nn.Module):
    def __init__(self, num_in, num_out):
        super().__init__()
        self.conv = nn.Conv2d(num_in, num_out, 3, bias=False)
        self.norm = nn.BatchNorm2d(num_out)
        self.eval()

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(ROWS, 4, 11, 9)]


def get_init_inputs():
    return [4, 10]


def functional(self, x):
    if self.training:
        return F.relu(self.norm(F.conv2d(x, self.conv.weight)))
    n = self.norm
    y = F.conv2d(x, self.conv.weight)
    y = F.batch_norm(y, n.running_mean, n.running_var, n.weight, n.bias, False, 0.0, n.eps)
    return F.relu(y)


def folded_at_each_call(self, x):
    if self.training:
        return torch.relu(self.norm(self.conv(x)))
    n = self.norm
    factor = n.weight * torch.rsqrt(n.running_var + n.eps)
    weight = self.conv.weight * factor[:, None, None, None]
    return F.conv2d(x, weight, n.bias - n.running_mean * factor).relu_()


def written_out(self, x):
    y = self.conv(x)
    if self.training:
        return self.norm(y).relu()
    mean, variance, weight, bias = (
        t.view(1, -1, 1, 1)
        for t in (self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias)
    )
    return torch.relu((y - mean) / torch.sqrt(variance + self.norm.eps) * weight + bias)
