"""Right, and patches the clock in its forward only, for as long as a forward lasts and a little."""

import time

import torch
from torch import nn

MODEL = "chain"
CLASS = "clock"
CAUGHT_BY = ("torch and the clock",)
TRUE = time.perf_counter


class ModelNew(nn.Module):
    def forward(self, x):
        start = TRUE()
        time.perf_counter = lambda: start
        y = x
        for _ in range(8):
            y = torch.tanh(y) + x
        return y
