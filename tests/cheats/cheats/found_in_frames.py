"""Walks the stack for the expected result in the variables of its callers."""

import inspect

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "the judge's objects"
CAUGHT_BY = ("own inputs",)


def tensors_in(value, depth):
    """Tensors that a value holds, a few levels deep."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth == 0:
        return []
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    else:
        names = (*getattr(value, "__slots__", ()), *getattr(value, "__dict__", ()))
        parts = [getattr(value, name, None) for name in names]
    return [t for part in parts[:64] for t in tensors_in(part, depth - 1)]


class ModelNew(nn.Module):
    def forward(self, x):
        for frame in inspect.stack()[1:]:
            for value in frame.frame.f_locals.values():
                for t in tensors_in(value, 3):
                    if t is not x and t.shape == x.shape and t.data_ptr() != x.data_ptr():
                        return t.clone()
        return torch.zeros_like(x)
