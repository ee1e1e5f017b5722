"""Returns a plain-looking subclass without data of its own, through __torch_function__."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "deferred work"
CAUGHT_BY = ("own inputs",)


SOURCES = {}


class Late(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            args = tuple(a.compute() if isinstance(a, Late) else a for a in args)
            return func(*args, **(kwargs or {}))

    def compute(self):
        x = SOURCES[self.data_ptr()]
        return torch.tanh(x) * x


class ModelNew(nn.Module):
    def forward(self, x):
        memory = torch.empty_like(x)
        SOURCES[memory.data_ptr()] = x
        return memory.as_subclass(Late)
