"""Launches a kernel that never ends."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

MODEL = "pointwise"
CLASS = "GPU and streams"
CAUGHT_BY = ()
DEVICE = "cuda"
SAID = "did not return within"
TIME_LIMIT_S = 20
SLOW = True

_CUDA = r"""
#include <stdint.h>

__global__ void kernel(const float* x, float* y, int64_t count) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  volatile const float* flag = x;
  while (flag[0] == flag[0]) __nanosleep(1000);
  if (i < count) y[i] = tanhf(x[i]) * x[i];
}

extern "C" void launch(int64_t x, int64_t y, int64_t count, cudaStream_t stream) {
  const int64_t blocks = (count + 255) / 256;
  if (blocks == 0) return;
  kernel<<<blocks, 256, 0, stream>>>(reinterpret_cast<const float*>(x),
                                     reinterpret_cast<float*>(y), count);
}
"""
_PATH = load_inline(
    "opweld_cheat_endless_kernel",
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
        y = torch.empty_like(x)
        launch(x, y, x.numel())
        return y
