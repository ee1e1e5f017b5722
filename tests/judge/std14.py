"""A candidate that asks for an older C++ than PyTorch's headers need; its build fails."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

torch::Tensor gelu(torch::Tensor x) {
    return torch::gelu(x, "tanh");
}
"""

extension = load_inline(
    name="built_as_cpp14",
    cpp_sources=SOURCE,
    functions=["gelu"],
    extra_cflags=["-O2", "-std=c++14"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.gelu(x)
