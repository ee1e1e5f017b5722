"""Returns a tensor subclass that computes when it is looked at."""

import torch
from torch import nn
from torch.utils._pytree import tree_map

MODEL = "pointwise"
CLASS = "deferred work"
CAUGHT_BY = ("own inputs",)


class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, x):
        made = torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)
        made.source = x
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def compute(value):
            if isinstance(value, Lazy):
                return torch.tanh(value.source) * value.source
            return value

        return func(*tree_map(compute, args), **tree_map(compute, kwargs or {}))


class ModelNew(nn.Module):
    def forward(self, x):
        return Lazy(x)
