"""PyTorch's product, then the gate and the sum in one kernel, one thread an element."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

__global__ void add_sigmoid_kernel(const float* y, float scale, float* out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) {
        float v = y[i];
        out[i] = scale / (1.0f + expf(-v)) + v;
    }
}

torch::Tensor add_sigmoid(torch::Tensor y, double scale) {
    const c10::cuda::CUDAGuard guard(y.device());
    auto out = torch::empty_like(y);
    int64_t n = y.numel();
    if (n == 0) return out;
    int threads = 256;
    int64_t blocks = (n + threads - 1) / threads;
    add_sigmoid_kernel<<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        y.data_ptr<float>(), (float)scale, out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="by_hand_linear_sigmoid",
    cpp_sources="torch::Tensor add_sigmoid(torch::Tensor y, double scale);",
    cuda_sources=CUDA,
    functions=["add_sigmoid"],
)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out, scale):
        super().__init__()
        self.project = nn.Linear(features_in, features_out)
        self.scale = scale

    def forward(self, x):
        return extension.add_sigmoid(self.project(x).contiguous(), self.scale)
