"""Has the very object that times its calls run slow by as little as two clocks may differ."""

import sys
import time

import torch
from torch import nn

MODEL = "chain"
CAUGHT_BY = ()
MEASURE = True
SCALE = 0.85
_perf_counter = time.perf_counter


def scaled_clock():
    start = _perf_counter()
    return lambda: start + SCALE * (_perf_counter() - start)


def take_over(frame):
    """The clock that times this call is a caller's own object."""
    while frame is not None:
        held = frame.f_locals.get("self")
        if type(held).__name__ == "WallClock" and held._now is _perf_counter:
            held._now = scaled_clock()
        frame = frame.f_back


class ModelNew(nn.Module):
    def forward(self, x):
        take_over(sys._getframe())
        y = x
        for _ in range(8):
            y = torch.tanh(y) + x
        return y
