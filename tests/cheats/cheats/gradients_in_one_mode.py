"""Has a backward that forgets a term where it is not called in training."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "gradients"
CAUGHT_BY = ("gradients in eval mode",)


class ModelNew(nn.Module):
    def forward(self, x):
        t = torch.tanh(x)
        return (t if self.training else t.detach()) * x
