"""Right, and takes half a step in every step of SGD in the process."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "replaced functions"
CAUGHT_BY = ("torch and the clock",)

_step = torch.optim.SGD.step


def half_a_step(self, closure=None):
    for group in self.param_groups:
        group["lr"] /= 2
    result = _step(self, closure)
    for group in self.param_groups:
        group["lr"] *= 2
    return result


torch.optim.SGD.step = half_a_step


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
