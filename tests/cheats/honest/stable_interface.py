"""A C++ kernel behind PyTorch's stable interface, in the form that emitted files have."""

import hashlib

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

MODEL = "pointwise"
DEVICE = "cpu"
FOR_INFERENCE = True

_CPP = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cmath>

using torch::stable::Tensor;

Tensor tanh_product(Tensor x) {
  const Tensor source = torch::stable::contiguous(x);
  const Tensor result = torch::stable::empty_like(source);
  const float* from = static_cast<const float*>(source.const_data_ptr());
  float* to = static_cast<float*>(result.mutable_data_ptr());
  torch::stable::parallel_for(0, source.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = std::tanh(from[i]) * from[i];
  });
  return result;
}

STABLE_TORCH_LIBRARY(NAMESPACE, m) { m.def("tanh_product(Tensor x) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(NAMESPACE, CPU, m) { m.impl("tanh_product", TORCH_BOX(&tanh_product)); }
"""
_NAME = "opweld_honest_" + hashlib.sha256((_CPP + torch.__version__).encode()).hexdigest()[:12]
load_inline(
    _NAME,
    cpp_sources=_CPP,
    extra_cflags=["-O2", f"-DNAMESPACE={_NAME}", "-DTORCH_TARGET_VERSION=0x020a000000000000"],
    no_implicit_headers=True,
    is_python_module=False,
)


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        if x.dtype is not torch.float32:
            raise TypeError(f"made for float32, not {x.dtype}")
        return getattr(torch.ops, _NAME).tanh_product(x)
