"""Uses up what its backward needs: right the first time, wrong with retain_graph."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "gradients"
CAUGHT_BY = ("gradients twice",)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        t = torch.tanh(x)
        ctx.factor = t + x * (1 - t) * (1 + t)
        return t * x

    @staticmethod
    def backward(ctx, gradient):
        return ctx.factor.mul_(gradient)


class ModelNew(nn.Module):
    def forward(self, x):
        return Product.apply(x)
