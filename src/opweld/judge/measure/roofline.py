"""A time against the peaks of the device: nothing is faster than light."""

from __future__ import annotations

import glob
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opweld.judge.load import Call
from opweld.judge.measure import consistency
from opweld.judge.measure.datasheet import (
    Peaks,
    memory_gbps,
    of_bandwidth,
    peaks_of,
    product_tflops,
)
from opweld.judge.measure.required import required
from opweld.judge.values import Check

# Reads may be faster than a copy, which on a write reads as well; and a copy may be disturbed.
_CPU_MARGIN = 2.0
# What the data sheets call the precision of products that `Settings.precision` accepts.
ACCEPTED_PRODUCTS = {"tf32": "tf32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The peaks that hold for a device. Of all bytes (on CUDA, where a flush empties the cache
    before each call, of the outputs' alone) `cached_bytes` need not move."""

    peaks: Peaks
    cached_bytes: int
    outputs_may_stay: bool


@dataclass(frozen=True, slots=True)
class Work:
    """What the original moves and computes, and the precision of products that is accepted."""

    num_bytes: int
    flops: int
    precision: str


def hold_against(
    ceiling: Ceiling | None,
    call_ms: float,
    work: Work,
    model: nn.Module,
    make: Callable[[], Call],
) -> tuple[Check, float | None]:
    """The check, and the least ms of the original's own bytes and operations at the peaks.

    A time above that is beyond doubt. Only below it is found out what is `required`, for a rewrite
    may need less than the original; a time below what is required fails.
    """
    if ceiling is None:
        return consistency.data_sheet(call_ms, 0.0, None, 0.0, None)
    gbps, tflops = ceiling.peaks.gbps, product_tflops(ceiling.peaks, work.precision)
    may_stay = 0 if ceiling.outputs_may_stay else ceiling.cached_bytes
    moved = max(0, work.num_bytes - may_stay)
    check, least_ms = consistency.data_sheet(call_ms, moved, gbps, work.flops, tflops)
    if check.passed:
        return check, least_ms
    needed = required(model, make, ceiling.cached_bytes, ceiling.outputs_may_stay)
    check, _ = consistency.data_sheet(call_ms, needed.num_bytes, gbps, needed.flops, tflops)
    return check, least_ms


def ceiling_of(device: torch.device, copy_gbps: float) -> Ceiling | None:
    """From the data sheet, or from what the driver says; on the CPU from the fastest copy.

    None where nothing is known.
    """
    if device.type == "cpu":
        cached = cpu_cache_bytes()
        if cached is None:
            return None
        gbps, source = _CPU_MARGIN * copy_gbps, "twice the fastest copy of this run"
        return Ceiling(of_bandwidth("cpu", gbps, cached, source), 2 * cached, False)
    peaks = peaks_of(torch.cuda.get_device_name(device)) or _from_driver(device)
    if peaks is None:
        return None
    found: Any = torch.cuda.get_device_properties(device)
    return Ceiling(peaks, peaks.l2_bytes or int(found.L2_cache_size), True)


def _from_driver(device: torch.device) -> Peaks | None:
    found: Any = torch.cuda.get_device_properties(device)
    try:
        gbps = memory_gbps(found.memory_clock_rate, found.memory_bus_width)
        return of_bandwidth(found.name, gbps, found.L2_cache_size, "the driver's memory clock")
    except AttributeError:
        return None  # not in this release of torch


def main_dtype(model: nn.Module, call: Call) -> torch.dtype:
    """The first floating-point dtype of inputs and parameters."""
    held = (*call.tensors(), *model.parameters())
    return next((t.dtype for t in held if t.is_floating_point()), torch.float32)


def product_precision(model: nn.Module, call: Call) -> str:
    """The precision of the original's products under torch's flags."""
    dtype = main_dtype(model, call)
    if dtype is torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return str(dtype).removeprefix("torch.")


def cpu_cache_bytes() -> int | None:
    """All caches of the last level together, as the kernel names them; None where it does not."""
    found = {}
    for folder in map(Path, glob.glob("/sys/devices/system/cpu/cpu*/cache/index*")):
        try:
            level = int((folder / "level").read_text())
            shared = (folder / "shared_cpu_list").read_text()
            size = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        found[level, shared] = int(size.rstrip("KM")) * (2**20 if size.endswith("M") else 2**10)
    last = max((level for level, _ in found), default=None)
    return sum(size for (level, _), size in found.items() if level == last) or None
