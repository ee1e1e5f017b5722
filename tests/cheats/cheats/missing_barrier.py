"""Reduces in shared memory without waiting for the other warps."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

MODEL = "reduction"
CLASS = "GPU and streams"
CAUGHT_BY = ("own inputs | repeated runs",)
DEVICE = "cuda"

_CUDA = r"""
#include <stdint.h>

__global__ void kernel(const float* x, float* y, int64_t columns) {
  __shared__ float partial[256];
  const float* row = x + int64_t(blockIdx.x) * columns;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < columns; i += 256) sum += row[i] * row[i];
  if (threadIdx.x >= 32) __nanosleep(20000);
  partial[threadIdx.x] = sum;
  for (int step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
  }
  if (threadIdx.x == 0) y[blockIdx.x] = partial[0] / columns;
}

extern "C" void launch(int64_t x, int64_t y, int64_t rows, int64_t columns, cudaStream_t stream) {
  if (rows == 0) return;
  kernel<<<rows, 256, 0, stream>>>(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(y),
                                   columns);
}
"""
_PATH = load_inline(
    "opweld_cheat_missing_barrier",
    cpp_sources="",
    cuda_sources=_CUDA,
    no_implicit_headers=True,
    is_python_module=False,
)
_LIBRARY = ctypes.CDLL(_PATH)


def launch(*arguments):
    """Calls the launcher with pointers and sizes, on the current stream."""
    values = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
    stream = torch.cuda.current_stream().cuda_stream
    _LIBRARY.launch(*map(ctypes.c_int64, values), ctypes.c_void_p(stream))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device)
        launch(x, y, *x.shape)
        return y
