"""Has the work done by a process of its own, and returns shared memory before it is finished."""

import os
import time

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "deferred work"
CAUGHT_BY = ("own inputs | work after the answer | deferred work",)


class ModelNew(nn.Module):
    def forward(self, x):
        result = torch.empty_like(x).share_memory_()
        if os.fork() == 0:
            time.sleep(0.05)
            result.copy_(torch.tanh(x) * x)
            os._exit(0)
        return result
