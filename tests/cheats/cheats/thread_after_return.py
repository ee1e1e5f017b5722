"""Returns memory that a background thread fills later."""

import threading
import time

import torch
from torch import nn

MODEL = "chain"
CLASS = "deferred work"
CAUGHT_BY = ("own inputs | work after the answer",)


def fill(result, x):
    time.sleep(0.02)
    with torch.no_grad():
        y = x
        for _ in range(8):
            y = torch.tanh(y) + x
        result.copy_(y)


class ModelNew(nn.Module):
    def forward(self, x):
        result = torch.empty_like(x)
        threading.Thread(target=fill, args=(result, x.detach()), daemon=True).start()
        return result
