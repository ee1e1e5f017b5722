"""Gives out one buffer as the gradient, again and again."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "gradients"
CAUGHT_BY = ("gradients twice",)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kept):
        ctx.save_for_backward(x)
        ctx.kept = kept
        return torch.tanh(x) * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        t = torch.tanh(x)
        buffer = ctx.kept.setdefault(tuple(x.shape), torch.empty_like(x))
        return torch.mul(gradient, t + x * (1 - t) * (1 + t), out=buffer), None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        return Product.apply(x, self.kept)
