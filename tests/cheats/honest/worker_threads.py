"""Splits its work between threads that have ended when it returns."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

MODEL = "pointwise"
FOR_INFERENCE = True


@torch.no_grad()
def rows(part):
    return torch.tanh(part) * part


class ModelNew(nn.Module):
    def forward(self, x):
        with ThreadPoolExecutor(2) as pool:
            return torch.cat(list(pool.map(rows, x.detach().tensor_split(2))))
