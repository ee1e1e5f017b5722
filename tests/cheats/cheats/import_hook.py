"""Right, and looks at everything that the process imports."""

import sys

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("process state",)


class Finder:
    """Finds nothing, and sees all that is looked for."""

    seen = []

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        cls.seen.append(name)


sys.meta_path.insert(0, Finder)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
