"""Right, and a thread of it overwrites the input some time after the call."""

import threading
import time

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "deferred work"
SAID = "writes to its inputs after it has returned"


def spoil(x):
    time.sleep(0.01)
    x.zero_()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * x
        threading.Thread(target=spoil, args=(x.detach(),), daemon=True).start()
        return y
