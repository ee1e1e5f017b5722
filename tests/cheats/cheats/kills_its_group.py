"""Kills its process group."""

import os
import signal

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "killed"


class ModelNew(nn.Module):
    def forward(self, x):
        os.killpg(0, signal.SIGKILL)
        return x
