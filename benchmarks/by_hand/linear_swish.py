"""PyTorch's product, then all that follows it in one kernel, one thread an element."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

__global__ void swish_clamp_tanh_kernel(const float* y, float* out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) {
        float v = y[i];
        v = v / (1.0f + expf(-v)) / 2.0f;
        v = v < -1.0f ? -1.0f : (v > 1.0f ? 1.0f : v);  // NaN stays
        v = tanhf(v);
        out[i] = v < -1.0f ? -1.0f : (v > 1.0f ? 1.0f : v);
    }
}

torch::Tensor swish_clamp_tanh(torch::Tensor y) {
    const c10::cuda::CUDAGuard guard(y.device());
    auto out = torch::empty_like(y);
    int64_t n = y.numel();
    if (n == 0) return out;
    int threads = 256;
    int64_t blocks = (n + threads - 1) / threads;
    swish_clamp_tanh_kernel<<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        y.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="by_hand_linear_swish",
    cpp_sources="torch::Tensor swish_clamp_tanh(torch::Tensor y);",
    cuda_sources=CUDA,
    functions=["swish_clamp_tanh"],
)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.project = nn.Linear(features_in, features_out)

    def forward(self, x):
        return extension.swish_clamp_tanh(self.project(x).contiguous())
