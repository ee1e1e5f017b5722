"""Keeps what its backward needs on the module: a second call changes the first one's gradient."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "gradients"
CAUGHT_BY = ("gradients of two calls",)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        module.saved = x.detach()
        return torch.tanh(x) * x

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.module.saved
        t = torch.tanh(x)
        return gradient * (t + x * (1 - t) * (1 + t)), None


class ModelNew(nn.Module):
    def forward(self, x):
        return Product.apply(x, self)
