"""Starts a thread for the work, and waits for it only when a result is copied or read."""

import threading

import torch
from torch import nn

MODEL = "chain"
CLASS = "deferred work"
CAUGHT_BY = ("torch and the clock | deferred work",)
MEASURE = True
RUNNING = []


def finish(function):
    def finished(*args, **kwargs):
        while RUNNING:
            RUNNING.pop().join()
        return function(*args, **kwargs)

    return finished


for _name in ("contiguous", "cpu", "numpy", "clone", "reshape", "view", "__getitem__", "copy_"):
    setattr(torch.Tensor, _name, finish(getattr(torch.Tensor, _name)))


def fill(result, x):
    with torch.no_grad():
        y = x
        for _ in range(8):
            y = torch.tanh(y) + x
        torch.add(y, 0, out=result)


class ModelNew(nn.Module):
    def forward(self, x):
        result = torch.empty_like(x, memory_format=torch.contiguous_format)
        thread = threading.Thread(target=fill, args=(result, x.detach()), daemon=True)
        RUNNING.append(thread)
        thread.start()
        return result
