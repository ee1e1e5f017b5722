"""How fast: ModelNew, eager and torch.compile in one run, beside what the machine could do at best.

The limit is the larger of two times, both from rates measured in the same run: the bytes that have
to move (inputs, parameters and outputs, each once) at the speed of a copy, and the operations of
the original's matrix products and convolutions at the speed of a large product of the same dtype
under the same flags.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from opweld.judge.clock import protocol, time_interleaved
from opweld.judge.load import Call, Pair, brief
from opweld.judge.memory import available_bytes
from opweld.judge.tree import tensors
from opweld.judge.values import Samples, Settings, Timing

COPY_ELEMS = {"cuda": 2**28, "cpu": 2**26}
PRODUCT_SIZE = {"cuda": 8192, "cpu": 1024}
_RATE_BUDGET_S = 0.3
# Below this share of the limit a time is not explained by a noisy measurement of the limit.
IMPLAUSIBLE = 0.8

Phase = Callable[[str, str], None]


def measure(
    pair: Pair, call: Call, settings: Settings, phase: Phase, limit_s: float = math.inf
) -> Timing:
    """Times of all three, and the limit; a baseline that fails is a note.

    There are fewer runs where all of them would take more than half of `limit_s`.

    Runs without gradients. `call` is handed to every run anew, so what writes to its inputs sees
    the values of the run before.
    """
    with torch.no_grad():
        actions: dict[str, Callable[[], Any]] = {}
        notes: list[str] = []
        if "eager" in settings.baselines:
            actions["eager"] = _caller(pair.original, call)
        if "compile" in settings.baselines:
            phase("torch.compile", "compiling the original")
            _add_compiled(actions, notes, pair, call)
        phase("ModelNew", "timing")
        actions["opweld"] = _caller(pair.new, call)
        samples = time_interleaved(
            actions, pair.device, settings.budget_s, settings.num_runs, limit_s / 2
        )
        phase("the original", "measuring the limit")
        return _timing(pair, call, samples, notes)


def copy_gbps(device: torch.device) -> float:
    """Bytes read and written a second by a device-to-device copy, in GB/s."""
    count = min(COPY_ELEMS[device.type], available_bytes(device) // 16)
    source = torch.zeros(count, dtype=torch.float32, device=device)
    target = torch.zeros_like(source)
    samples = time_interleaved({"copy": lambda: target.copy_(source)}, device, _RATE_BUDGET_S)
    return 2 * source.nbytes / samples["copy"].median / 1e6


def product_tflops(device: torch.device, dtype: torch.dtype) -> float:
    """TFLOP/s of a square matrix product under torch's current precision flags."""
    size = PRODUCT_SIZE[device.type]
    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    samples = time_interleaved({"product": lambda: left @ right}, device, _RATE_BUDGET_S)
    return 2 * size**3 / samples["product"].median / 1e9


def moved_bytes(model: nn.Module, call: Call, outputs: Any) -> int:
    """Bytes of inputs, parameters, buffers and outputs; what several of them share counts once."""
    held = (*call.tensors(), *model.parameters(), *model.buffers(), *tensors(outputs))
    return sum(size for _, size in {(t.data_ptr(), touched_bytes(t)) for t in held})


def touched_bytes(t: Tensor) -> int:
    """Bytes of the distinct elements: an expanded dimension holds one."""
    if t.layout is not torch.strided:
        return t.numel() * t.element_size()
    distinct = 1
    for size, stride in zip(t.shape, t.stride(), strict=True):
        distinct *= size if stride or size == 0 else 1
    return distinct * t.element_size()


def product_flops(model: nn.Module, call: Call) -> int:
    """Operations of the matrix products and convolutions, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        model(*call.args, **call.kwargs)
    return int(counter.get_total_flops())


def _timing(pair: Pair, call: Call, samples: dict[str, Samples], notes: list[str]) -> Timing:
    outputs = pair.original(*call.args, **call.kwargs)
    num_bytes = moved_bytes(pair.original, call, outputs)
    flops = product_flops(pair.original, call)
    bandwidth = copy_gbps(pair.device)
    rate = product_tflops(pair.device, _main_dtype(pair.original, call)) if flops else None
    limit_ms, reason = limit(num_bytes, flops, bandwidth, rate)
    if samples["opweld"].median < IMPLAUSIBLE * limit_ms:
        notes.append("ModelNew is faster than the limit: caches hold the data, or it does less")
    return Timing(
        eager_ms=samples.get("eager"),
        compile_ms=samples.get("compile"),
        opweld_ms=samples["opweld"],
        limit_ms=limit_ms,
        limit_reason=reason,
        protocol=protocol(pair.device),
        copy_gbps=bandwidth,
        product_tflops=rate,
        device=str(pair.device),
        notes=tuple(notes),
    )


def limit(
    num_bytes: int, flops: int, copy_gbps: float, product_tflops: float | None
) -> tuple[float, str]:
    """The least time in ms, and which of the two sets it."""
    move_ms = num_bytes / copy_gbps / 1e6
    multiply_ms = flops / product_tflops / 1e9 if product_tflops else 0.0
    if multiply_ms > move_ms:
        return multiply_ms, f"products: {flops / 1e9:.4g} GFLOP at {product_tflops:.4g} TFLOP/s"
    return move_ms, f"memory: {num_bytes / 1e6:.4g} MB at the copy's {copy_gbps:.4g} GB/s"


def _add_compiled(
    actions: dict[str, Callable[[], Any]], notes: list[str], pair: Pair, call: Call
) -> None:
    """torch.compile in its default mode; the first calls, which compile, happen here."""
    try:
        torch.compiler.reset()
        compiled = _caller(torch.compile(pair.original), call)
        compiled()
        compiled()
    except Exception as error:
        notes.append(f"torch.compile failed: {brief(error)}")
        return
    actions["compile"] = compiled


def _caller(model: Callable[..., Any], call: Call) -> Callable[[], Any]:
    return lambda: model(*call.args, **call.kwargs)


def _main_dtype(model: nn.Module, call: Call) -> torch.dtype:
    held = (*call.tensors(), *model.parameters())
    return next((t.dtype for t in held if t.is_floating_point()), torch.float32)
