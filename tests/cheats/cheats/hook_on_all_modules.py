"""Right, and registers a global forward hook that sleeps."""

import time

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "clock"
CAUGHT_BY = ("torch and the clock",)


def pause(module, args):
    if type(module).__name__ != "ModelNew":
        time.sleep(0.02)


nn.modules.module.register_module_forward_pre_hook(pause)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
