"""Never returns from C code, with every signal blocked that can be."""

import ctypes
import signal

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "did not return within"
TIME_LIMIT_S = 6


class ModelNew(nn.Module):
    def forward(self, x):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            ctypes.PyDLL(None).sleep(1000)
