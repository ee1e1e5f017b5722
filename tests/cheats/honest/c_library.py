"""A C function of its own that it builds with the system's compiler and calls through ctypes."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

MODEL = "pointwise"
DEVICE = "cpu"
FOR_INFERENCE = True

_C = """
#include <math.h>
void tanh_product(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = (float)tanh(x[i]) * x[i];
}
"""
with tempfile.TemporaryDirectory() as _folder:
    _source, _library = Path(_folder, "kernel.c"), Path(_folder, "kernel.so")
    _source.write_text(_C)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", _source, "-o", _library, "-lm"], check=True)
    _tanh_product = ctypes.CDLL(str(_library)).tanh_product


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype is not torch.float32:
            raise TypeError(f"made for float32, not {x.dtype}")
        x = x.detach().contiguous()
        y = torch.empty_like(x)
        _tanh_product(
            ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel())
        )
        return y
