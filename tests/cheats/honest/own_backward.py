"""A backward of its own, with the right formula."""

import torch
from torch import nn

MODEL = "pointwise"


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x) * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        t = torch.tanh(x)
        return gradient * (t + x * (1 - t) * (1 + t))


class ModelNew(nn.Module):
    def forward(self, x):
        return Product.apply(x)
