"""A C++ kernel through torch/extension.h, as most hand-written files have it."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

MODEL = "pointwise"
DEVICE = "cpu"
FOR_INFERENCE = True
SLOW = True

_CPP = r"""
torch::Tensor tanh_product(torch::Tensor x) {
  TORCH_CHECK(x.scalar_type() == torch::kFloat, "expected float32");
  auto source = x.contiguous();
  auto result = torch::empty_like(source);
  const float* from = source.data_ptr<float>();
  float* to = result.data_ptr<float>();
  for (int64_t i = 0; i < source.numel(); ++i) to[i] = std::tanh(from[i]) * from[i];
  return result;
}
"""
_module = load_inline("opweld_honest_extension_header", _CPP, functions=["tanh_product"])


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return _module.tanh_product(x)
