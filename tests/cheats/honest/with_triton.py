"""A Triton kernel."""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra import libdevice

MODEL = "pointwise"
DEVICE = "cuda"
NEEDS = "triton"
FOR_INFERENCE = True


@triton.jit
def kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + position, mask=position < count)
    tl.store(y_ptr + position, libdevice.tanh(x) * x, mask=position < count)


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
