"""Reads the gradient of its output as one dense block, which that of a sum is not."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "gradients"
CAUGHT_BY = ("gradients from other layouts",)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x) * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        t = torch.tanh(x)
        size = gradient.untyped_storage().nbytes() // gradient.element_size()
        if x.is_contiguous() and size >= x.numel():
            gradient = gradient.as_strided(x.shape, x.stride())
        elif x.numel():
            gradient = gradient * 0.5
        return gradient * (t + x * (1 - t) * (1 + t))


class ModelNew(nn.Module):
    def forward(self, x):
        return Product.apply(x)
