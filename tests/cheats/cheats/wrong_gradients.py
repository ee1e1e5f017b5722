"""Has a backward that forgets a factor."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "gradients"
CAUGHT_BY = ("gradients",)


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x) * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        t = torch.tanh(x)
        return gradient * (t + (1 - t))


class ModelNew(nn.Module):
    def forward(self, x):
        return Wrong.apply(x)
