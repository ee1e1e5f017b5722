"""Counts in 32 bits, which 2^31 elements exceed."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

MODEL = "huge"
CLASS = "sizes"
CAUGHT_BY = ("own inputs",)
DEVICE = "cuda"
SLOW = True

_CUDA = r"""
#include <cuda_bf16.h>
#include <stdint.h>

__global__ void kernel(const __nv_bfloat16* x, __nv_bfloat16* y, int64_t count) {
  const unsigned step = gridDim.x * 256;
  for (int i = blockIdx.x * 256 + threadIdx.x; i >= 0 && i < count; i = int(unsigned(i) + step)) {
    const float value = __bfloat162float(x[i]);
    y[i] = __float2bfloat16(value > 0.0f ? 0.5f * value : value < 0.0f ? 0.0f : value);
  }
}

extern "C" void launch(int64_t x, int64_t y, int64_t count, cudaStream_t stream) {
  if (count == 0) return;
  kernel<<<4096, 256, 0, stream>>>(reinterpret_cast<const __nv_bfloat16*>(x),
                                   reinterpret_cast<__nv_bfloat16*>(y), count);
}
"""
_PATH = load_inline(
    "opweld_cheat_int32_overflow",
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
