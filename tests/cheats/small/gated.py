"""A gated pointwise chain."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.cpp_extension import load_inline

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

FOR_INFERENCE = ("out_variants", "c_library", "extension", "numpy_inside")
WHOLE = ("addcmul", "gated_linear_unit", "flattened")
ROWS, WIDTH = 48, 65


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x) + torch.tanh(x)


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return []


def addcmul(self, x):
    return torch.addcmul(torch.tanh(x), x, torch.special.expit(x.mul(1.702)))


def gated_linear_unit(self, x):
    return F.glu(torch.cat([x, 1.702 * x], dim=1), dim=1) + x.tanh()


def in_place_tail(self, x):
    y = x * F.sigmoid(1.702 * x)
    y += torch.tanh(x)
    return y


def flattened(self, x):
    flat = x.reshape(-1)
    return (flat * torch.sigmoid(1.702 * flat) + torch.tanh(flat)).view(x.shape)


def transposed_inside(self, x):
    t = x.transpose(0, 1).contiguous()
    return (t * torch.sigmoid(1.702 * t) + torch.tanh(t)).transpose(0, 1)


@torch.no_grad()
def out_variants(self, x):
    gate, result = torch.empty_like(x), torch.empty_like(x)
    torch.mul(x, 1.702, out=gate)
    torch.sigmoid(gate, out=gate)
    torch.tanh(x, out=result)
    return result.addcmul_(x, gate)


def numpy_inside(self, x):
    values = x.detach().cpu().numpy().astype(np.float64)
    with np.errstate(all="ignore"):
        result = values / (1 + np.exp(-1.702 * values)) + np.tanh(values)
    return torch.from_numpy(result).to(x.dtype)


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s, t = torch.sigmoid(1.702 * x), torch.tanh(x)
        ctx.save_for_backward(x, s, t)
        return x * s + t

    @staticmethod
    def backward(ctx, gradient):
        x, s, t = ctx.saved_tensors
        return gradient * (s + 1.702 * x * s * (1 - s) + (1 - t * t))


def own_backward(self, x):
    return Gate.apply(x)


@torch.library.custom_op("opweld_honest::gate", mutates_args=())
def gate_op(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x) + torch.tanh(x)


@gate_op.register_fake
def gate_op_fake(x):
    return torch.empty_like(x)


def gate_op_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def gate_op_backward(ctx, gradient):
    (x,) = ctx.saved_tensors
    s, t = torch.sigmoid(1.702 * x), torch.tanh(x)
    return gradient * (s + 1.702 * x * s * (1 - s) + (1 - t) * (1 + t))


gate_op.register_autograd(gate_op_backward, setup_context=gate_op_setup)


def custom_op(self, x):
    return gate_op(x)


C_TEXT = """
#include <math.h>
void gate(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) {
    const double v = x[i];
    y[i] = (float)(v / (1.0 + exp(-1.702 * v)) + tanh(v));
  }
}
"""


def build():
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "gate.c"), Path(folder, "gate.so")
        source.write_text(C_TEXT)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
        return ctypes.CDLL(str(library)).gate


GATE = build()


def c_library(self, x):
    if x.dtype != torch.float32:
        raise TypeError(f"float32 expected, not {x.dtype}")
    x = x.detach().contiguous()
    y = torch.empty_like(x)
    GATE(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
    return y


CPP_TEXT = r"""
torch::Tensor gate(torch::Tensor x) {
  TORCH_CHECK(x.scalar_type() == torch::kFloat, "expected float32");
  auto source = x.contiguous();
  auto result = torch::empty_like(source);
  const float* from = source.data_ptr<float>();
  float* to = result.data_ptr<float>();
  at::parallel_for(0, source.numel(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      to[i] = from[i] / (1.0f + std::exp(-1.702f * from[i])) + std::tanh(from[i]);
  });
  return result;
}
"""
EXTENSION = load_inline("opweld_honest_gate", CPP_TEXT, functions=["gate"], extra_cflags=["-O2"])


@torch.no_grad()
def extension(self, x):
    return EXTENSION.gate(x)


if triton is not None:

    @triton.jit
    def gate_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < count)
        tanh = 2 * tl.sigmoid(2 * x) - 1
        tl.store(y_ptr + at, x * tl.sigmoid(1.702 * x) + tanh, mask=at < count)


def kernel_or_torch(self, x):
    if triton is None or not x.is_cuda or torch.is_grad_enabled():
        return x * torch.sigmoid(1.702 * x) + torch.tanh(x)
    x = x.contiguous()
    y = torch.empty_like(x)
    gate_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
