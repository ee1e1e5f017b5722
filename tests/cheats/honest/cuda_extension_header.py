"""A CUDA kernel through torch/extension.h: one thread an element, blocks of 256."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

MODEL = "pointwise"
DEVICE = "cuda"
FOR_INFERENCE = True
SLOW = True

_CUDA = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

__global__ void kernel(const float* x, float* y, int64_t count) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) y[i] = tanhf(x[i]) * x[i];
}

torch::Tensor tanh_product(torch::Tensor x) {
  const c10::cuda::CUDAGuard guard(x.device());
  auto source = x.contiguous();
  auto result = torch::empty_like(source);
  const int64_t count = source.numel();
  if (count == 0) return result;
  kernel<<<(count + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      source.data_ptr<float>(), result.data_ptr<float>(), count);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}
"""
_module = load_inline(
    "opweld_honest_cuda_extension_header",
    cpp_sources="torch::Tensor tanh_product(torch::Tensor x);",
    cuda_sources=_CUDA,
    functions=["tanh_product"],
)


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return _module.tanh_product(x)
