"""Returns an old result where calls follow each other so fast that they must be timed ones."""

import time

import torch
from torch import nn

MODEL = "chain"
CLASS = "recognising the judge"
CAUGHT_BY = ("timed results",)
MEASURE = True


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.left, self.num_fast = {}, 0.0, 0

    def forward(self, x):
        gap_s = time.monotonic() - self.left
        self.num_fast = self.num_fast + 1 if gap_s < 2e-4 else 0
        key = tuple(x.shape)
        if self.num_fast < 1 or key not in self.kept:
            y = x
            for _ in range(8):
                y = torch.tanh(y) + x
            self.kept[key] = y.detach()
        else:
            y = self.kept[key].clone()
        self.left = time.monotonic()
        return y
