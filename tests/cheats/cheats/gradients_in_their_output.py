"""Writes the gradient of its input over that of its output."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "gradients"
CAUGHT_BY = ("gradients",)
SAID = "gradient of output 0 afterwards"


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x) * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        t = torch.tanh(x)
        return gradient.mul_(t + x * (1 - t) * (1 + t))


class ModelNew(nn.Module):
    def forward(self, x):
        return Product.apply(x)
