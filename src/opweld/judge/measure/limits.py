"""What the machine could do at best: the limit that the reports show.

From rates measured in the same run, the larger of two times: the bytes of inputs, parameters and
outputs at the speed of a copy, and the operations of the original's products and convolutions at
the speed of a large product of that dtype under the same flags, or, of float32 on CUDA, of three in
half precision, which are enough for one. A clever rewrite may be faster.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from opweld.judge.load import Call
from opweld.judge.measure.clock import time_interleaved
from opweld.judge.process.memory import available_bytes
from opweld.judge.sparse import dense_parts
from opweld.judge.tree import tensors
from opweld.judge.values import Samples

COPY_ELEMS = {"cuda": 2**28, "cpu": 2**26}
PRODUCT_SIZE = {"cuda": 8192, "cpu": 1024}
_RATE_BUDGET_S = 0.3
# Products of half-precision parts that one of float32 takes: upper by upper, and two crosswise.
HALVES_OF_FLOAT32 = 3


def copy_samples(device: torch.device) -> tuple[Samples, int]:
    """Times of a device-to-device copy, and the bytes that one reads and writes."""
    count = min(COPY_ELEMS[device.type], available_bytes(device) // 16)
    source = torch.zeros(count, dtype=torch.float32, device=device)
    target = torch.zeros_like(source)
    samples = time_interleaved({"copy": lambda: target.copy_(source)}, device, _RATE_BUDGET_S)
    return samples["copy"], 2 * source.nbytes


def product_tflops(device: torch.device, dtype: torch.dtype) -> float:
    """TFLOP/s of a square matrix product under torch's current precision flags, or by halves."""
    rate = _rate(device, dtype)
    if device.type == "cuda" and dtype is torch.float32:
        return max(rate, _rate(device, torch.float16) / HALVES_OF_FLOAT32)
    return rate


def _rate(device: torch.device, dtype: torch.dtype) -> float:
    size = PRODUCT_SIZE[device.type]
    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    samples = time_interleaved({"product": lambda: left @ right}, device, _RATE_BUDGET_S)
    return 2 * size**3 / samples["product"].median / 1e9


def limit(
    num_bytes: int, flops: int, copy_gbps: float, product_tflops: float | None
) -> tuple[float, str]:
    """The least time in ms, and which of the two sets it."""
    move_ms = num_bytes / copy_gbps / 1e6
    multiply_ms = flops / product_tflops / 1e9 if product_tflops else 0.0
    if multiply_ms > move_ms:
        return multiply_ms, f"products: {flops / 1e9:.4g} GFLOP at {product_tflops:.4g} TFLOP/s"
    return move_ms, f"memory: {num_bytes / 1e6:.4g} MB at the copy's {copy_gbps:.4g} GB/s"


def moved_bytes(model: nn.Module, call: Call, outputs: Any) -> int:
    """Bytes of inputs, parameters, buffers and outputs; what several of them share counts once."""
    held = (*call.tensors(), *model.parameters(), *model.buffers(), *tensors(outputs))
    parts = [part for t in held for part in dense_parts(t)]
    return sum(size for _, size in {(t.data_ptr(), touched_bytes(t)) for t in parts})


def touched_bytes(t: Tensor) -> int:
    """Bytes of the distinct elements: an expanded dimension holds one, a sparse tensor what it
    stores.
    """
    if t.layout is not torch.strided:
        return sum(map(touched_bytes, dense_parts(t)))
    distinct = 1
    for size, stride in zip(t.shape, t.stride(), strict=True):
        distinct *= size if stride or size == 0 else 1
    return distinct * t.element_size()


def product_flops(model: nn.Module, call: Call) -> int:
    """Operations of the matrix products and convolutions, as torch counts them."""
    return run_counted(model, call)[1]


def run_counted(model: nn.Module, call: Call) -> tuple[Any, int]:
    """The outputs of a call, and the operations of its matrix products and convolutions."""
    with FlopCounterMode(display=False) as counter:
        outputs = model(*call.args, **call.kwargs)
    return outputs, int(counter.get_total_flops())
