"""Timing several callables side by side on one device: interleaved runs, medians.

CUDA: events around each call on the current stream, after a write over a buffer larger than any L2
cache. The write also gives the host time to enqueue, so launch time does not show where the kernels
are longer than their launches. CPU: wall-clock time, without a flush; the result of a call is freed
outside of the timed region.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch

from opweld.judge.values import Samples

FLUSH_BYTES = 256 * 2**20
MIN_RUNS, MAX_RUNS = 5, 200
_NUM_WARM_UPS, _LONG_MS = 3, 500.0
_CUDA_EVENT = torch.cuda.Event

Action = Callable[[], Any]


def time_interleaved(
    actions: Mapping[str, Action],
    device: torch.device,
    budget_s: float,
    num_runs: int | None = None,
    limit_s: float = math.inf,
) -> dict[str, Samples]:
    """Samples of each action, in rounds that call every one of them once.

    The order inside a round rotates, so that none always follows the same neighbour. Without
    `num_runs` there are as many rounds as fit into `budget_s` seconds for each action, at least
    `MIN_RUNS` unless these would take longer than `limit_s` altogether.
    """
    clock: _WallClock | _CudaClock
    clock = _CudaClock(device) if device.type == "cuda" else _WallClock()
    first = {name: _warm_up(clock, action) for name, action in actions.items()}
    round_ms = sum(first.values()) + clock.overhead_ms * len(first)
    rounds = num_runs or _num_rounds(round_ms, budget_s * len(first), limit_s)
    times: dict[str, list[float]] = {name: [] for name in actions}
    names = list(actions)
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            times[name].append(clock.time(actions[name]))
    return {name: summarise(values) for name, values in times.items()}


def summarise(times_ms: list[float]) -> Samples:
    """Median and the 10th and 90th percentile, by linear interpolation."""
    ordered = sorted(times_ms)
    return Samples(
        _quantile(ordered, 0.5), _quantile(ordered, 0.1), _quantile(ordered, 0.9), len(ordered)
    )


def protocol(device: torch.device) -> str:
    """One sentence on how the times of this device are taken."""
    if device.type == "cuda":
        return (
            "medians of interleaved runs by CUDA events, after warm-up, each after a write over"
            f" {FLUSH_BYTES // 2**20} MiB that empties the L2 cache"
        )
    return (
        "medians of interleaved runs by wall clock, after warm-up, caches as the runs leave them,"
        f" {torch.get_num_threads()} threads"
    )


def _warm_up(clock: _WallClock | _CudaClock, action: Action) -> float:
    """The time of the last of some runs: three, or one where that takes long."""
    elapsed = clock.time(action)
    for _ in range(_NUM_WARM_UPS):
        if elapsed < _LONG_MS:
            elapsed = clock.time(action)
    return elapsed


class _WallClock:
    overhead_ms = 0.0

    def time(self, action: Action) -> float:
        start = perf_counter()
        result = action()
        elapsed = perf_counter() - start
        del result
        return elapsed * 1e3


class _CudaClock:
    overhead_ms = 0.2  # the flush, and waiting for the device

    def __init__(self, device: torch.device) -> None:
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)

    def time(self, action: Action) -> float:
        start, end = _CUDA_EVENT(enable_timing=True), _CUDA_EVENT(enable_timing=True)
        self._flush.zero_()
        start.record()
        result = action()
        end.record()
        torch.cuda.synchronize()
        del result
        return float(start.elapsed_time(end))


def _num_rounds(round_ms: float, budget_s: float, limit_s: float = math.inf) -> int:
    round_s = max(round_ms, 1e-3) / 1e3
    rounds = min(max(budget_s / round_s, MIN_RUNS), MAX_RUNS)
    return int(max(1, min(rounds, limit_s / round_s)))


def _quantile(ordered: list[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
