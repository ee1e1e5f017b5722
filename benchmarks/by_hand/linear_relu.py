"""PyTorch's product, then the shift and ReLU in one kernel, one thread an element."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

__global__ void add_relu_kernel(
    const float* y, const float* shift, int64_t columns, float* out, int64_t n
) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) {
        float v = y[i] + shift[i % columns];
        out[i] = v < 0.0f ? 0.0f : v;  // NaN stays
    }
}

torch::Tensor add_relu(torch::Tensor y, torch::Tensor shift) {
    const c10::cuda::CUDAGuard guard(y.device());
    auto out = torch::empty_like(y);
    int64_t n = y.numel();
    if (n == 0) return out;
    int threads = 256;
    int64_t blocks = (n + threads - 1) / threads;
    add_relu_kernel<<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        y.data_ptr<float>(), shift.data_ptr<float>(), shift.numel(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="by_hand_linear_relu",
    cpp_sources="torch::Tensor add_relu(torch::Tensor y, torch::Tensor shift);",
    cuda_sources=CUDA,
    functions=["add_relu"],
)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.project = nn.Linear(features_in, features_out, bias=False)
        self.shift = nn.Parameter(torch.randn(features_out))

    def forward(self, x):
        return extension.add_relu(self.project(x).contiguous(), self.shift.contiguous())
