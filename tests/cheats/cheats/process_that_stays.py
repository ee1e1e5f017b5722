"""Right, and forks a process that stays."""

import os
import time

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("processes left behind",)

if os.fork() == 0:
    time.sleep(60)
    os._exit(0)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
