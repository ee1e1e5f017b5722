"""Stops its own process by a signal, so that it neither runs nor ends."""

import os
import signal

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "did not return within"
TIME_LIMIT_S = 6


class ModelNew(nn.Module):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSTOP)
        return x
