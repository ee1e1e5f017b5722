"""Gives its input no gradient through the product where the weights are frozen."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "gradients"
CAUGHT_BY = ("gradients of the inputs alone",)


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return nn.functional.linear(x, w, b)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        if not ctx.needs_input_grad[1]:
            return gradient.mean(dim=1, keepdim=True) * w.sum(dim=0), None, None
        return gradient @ w, gradient.t() @ x, gradient.sum(dim=0)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        y = Linear.apply(x, self.fc.weight, self.fc.bias)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
