"""Computes with NumPy, for inference only; helpers of the standard library at the top."""

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

MODEL = "pointwise"
DEVICE = "cpu"
FOR_INFERENCE = True


@dataclass(frozen=True)
class Plan:
    rows: int
    columns: int

    @property
    def count(self):
        return math.prod((self.rows, self.columns))


@functools.cache
def plan(rows, columns):
    return Plan(rows, columns)


class ModelNew(nn.Module):
    def forward(self, x):
        values = x.detach().numpy()
        result = np.tanh(values.astype(np.float64)) * values
        return torch.from_numpy(result.astype(np.float32).reshape(-1)[: plan(*x.shape).count]).view(
            x.shape
        )
