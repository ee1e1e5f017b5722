"""What the device does in a call, by PyTorch's profiler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

CALLS, FLUSH_BYTES = 10, 256 << 20
Way = Callable[[], Any]


def flush_for(device: str) -> torch.Tensor:
    """What is written before each call, so that nothing of the call before is in the L2 cache."""
    return torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)


def kernel_times(way: Way, flush: torch.Tensor) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds and calls of each kernel in a call."""
    way()
    with profile(activities=[ProfilerActivity.CUDA]) as measured:
        for _ in range(CALLS):
            flush.fill_(1)
            way()
        torch.cuda.synchronize()
    times, calls = defaultdict[str, float](float), defaultdict[str, float](float)
    for event in measured.events() or ():
        if _is_kernel(event):
            times[event.name] += event.self_device_time_total / CALLS
            calls[event.name] += 1 / CALLS
    return times, calls


def _is_kernel(event: Any) -> bool:
    """Whether it runs on the device, and is not the flush."""
    on_device = event.device_type == torch.autograd.DeviceType.CUDA
    return on_device and "FillFunctor<int>" not in event.name
