"""Has gradients that are right for positive inputs, which are all that get_inputs gives."""

import torch
from torch import nn

MODEL = "positive"
CLASS = "gradients"
CAUGHT_BY = ("gradients on other values",)


class Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.sqrt(torch.relu(x) + 1e-6)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient / (2 * y)


class ModelNew(nn.Module):
    def forward(self, x):
        return Root.apply(x)
