"""Logarithms of a softmax with a temperature."""

import torch
from torch import nn
from torch.nn import functional as F

FOR_INFERENCE = ("in_place_steps",)
WHOLE = ("functional", "ModuleInside")
ROWS, WIDTH = 24, 130


class Model(nn.Module):
    def forward(self, x):
        return torch.log_softmax(x / 0.7, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, WIDTH) * 3]


def get_init_inputs():
    return []


def functional(self, x):
    return F.log_softmax(torch.div(x, 0.7), dim=-1)


class ModuleInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_softmax = nn.LogSoftmax(dim=-1)

    def forward(self, x):
        return self.log_softmax(x.div(0.7))


def written_out(self, x):
    y = x / 0.7
    y = y - y.amax(dim=-1, keepdim=True).detach()
    return y - torch.exp(y).sum(dim=-1, keepdim=True).log()


@torch.no_grad()
def in_place_steps(self, x):
    y = x / 0.7
    y -= y.max(dim=-1, keepdim=True).values
    y -= y.exp().sum(dim=-1, keepdim=True).log_()
    return y


def row_by_row(self, x):
    return torch.stack([F.log_softmax(row / 0.7, dim=0) for row in x]) if len(x) else x / 0.7


class LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.log_softmax(x, dim=-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient - y.exp() * gradient.sum(dim=-1, keepdim=True)


def own_backward(self, x):
    return LogSoftmax.apply(x / 0.7)
