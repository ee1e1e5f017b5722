"""Right, with a thread that Python's threading module does not know of."""

import _thread
import time

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("work after the answer",)
BURN_S = 30.0


def burn():
    end = time.monotonic() + BURN_S
    block = torch.ones(200_000)
    while time.monotonic() < end:
        block.tanh_()


_thread.start_new_thread(burn, ())


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
