"""Splits its work between threads that have ended when it returns.

On the host alone: on a GPU its threads would not work on the caller's stream, which is a fault.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

MODEL = "pointwise"
DEVICE = "cpu"
FOR_INFERENCE = True


@torch.no_grad()
def rows(part):
    return torch.tanh(part) * part


class ModelNew(nn.Module):
    def forward(self, x):
        with ThreadPoolExecutor(2) as pool:
            return torch.cat(list(pool.map(rows, x.detach().tensor_split(2))))
