"""The clocks of the process that runs a model, and medians with their spread.

CUDA: events around each call on one stream, after a write over a buffer larger than any L2 cache.
The write also gives the host time to enqueue, so launch time does not show where the kernels are
longer than their launches. CPU: wall-clock time, without a flush; the result of a call is freed
outside of the timed region.

Every function that times is bound when this module is imported, before a file that is judged: what
such a file puts in its place in `time` or `torch.cuda` is not called here. A file can still reach
into this module, so these times are held against a clock in another process (`rounds.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Protocol

import torch

from opweld.judge.values import Samples

FLUSH_BYTES = 256 * 2**20
MIN_RUNS, MAX_RUNS = 5, 200
_NUM_WARM_UPS, _LONG_MS = 3, 500.0
# torch.cuda.Event and torch.cuda.synchronize are Python, whose parts can be replaced one by one.
_EVENT: Any = torch._C._CudaEventBase
_RECORD: Any = getattr(_EVENT, "record", None)
_ELAPSED: Any = getattr(_EVENT, "elapsed_time", None)
_SYNCHRONIZE: Any = getattr(torch._C, "_cuda_synchronize", None)
_CURRENT_STREAM = torch.cuda.current_stream
_FILL_ZERO: Any = torch._C.TensorBase.zero_

Action = Callable[[], Any]


def nothing() -> None:
    """The action that does nothing."""


class Clock(Protocol):
    """Times one call; `overhead_ms` is about what it takes beside the call."""

    overhead_ms: float

    def time(self, action: Action, before: Action = nothing) -> tuple[float, Any]:
        """Milliseconds that the action took, and its result.

        `before` runs right before, on CUDA behind the flush, and is not timed.
        """
        ...

    def wait(self) -> None:
        """Until the device has nothing left to do."""
        ...


class WallClock:
    """The host's clock, for models on the CPU."""

    overhead_ms = 0.0

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now

    def time(self, action: Action, before: Action = nothing) -> tuple[float, Any]:
        before()
        start = self._now()
        result = action()
        return (self._now() - start) * 1e3, result

    def wait(self) -> None:
        return


class CudaClock:
    """Events on the stream that was current when the clock was made, after a flush."""

    overhead_ms = 0.2  # the flush, and waiting for the device

    def __init__(self, device: torch.device) -> None:
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)
        # a call that leaves another stream current would have its end recorded there
        self._stream = _CURRENT_STREAM(device)

    def time(self, action: Action, before: Action = nothing) -> tuple[float, Any]:
        start, end = _EVENT(enable_timing=True), _EVENT(enable_timing=True)
        _FILL_ZERO(self._flush)
        before()
        _RECORD(start, self._stream)
        result = action()
        _RECORD(end, self._stream)
        _SYNCHRONIZE()
        return float(_ELAPSED(start, end)), result

    def wait(self) -> None:
        _SYNCHRONIZE()


def clock_of(device: torch.device) -> Clock:
    """The clock for models on this device."""
    return CudaClock(device) if device.type == "cuda" else WallClock()


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
    clock = clock_of(device)
    first = {name: _warm_up(clock, action) for name, action in actions.items()}
    round_ms = sum(first.values()) + clock.overhead_ms * len(first)
    rounds = num_runs or _num_rounds(round_ms, budget_s * len(first), limit_s)
    times: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(rounds):
        for name in rotated(list(actions), turn):
            times[name].append(clock.time(actions[name])[0])
    return {name: summarise(values) for name, values in times.items()}


def rotated(names: list[str], turn: int) -> list[str]:
    """The names, beginning with another one each turn."""
    shift = turn % len(names)
    return names[shift:] + names[:shift]


def summarise(times_ms: list[float]) -> Samples:
    """Median and the 10th and 90th percentile, by linear interpolation."""
    ordered = sorted(times_ms)
    return Samples(
        quantile(ordered, 0.5), quantile(ordered, 0.1), quantile(ordered, 0.9), len(ordered)
    )


def quantile(ordered: list[float], share: float) -> float:
    """The value below which `share` of the sorted values lie, by linear interpolation."""
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def _warm_up(clock: Clock, action: Action) -> float:
    """The time of the last of some runs: three, or one where that takes long."""
    elapsed = clock.time(action)[0]
    for _ in range(_NUM_WARM_UPS):
        if elapsed < _LONG_MS:
            elapsed = clock.time(action)[0]
    return elapsed


def _num_rounds(round_ms: float, budget_s: float, limit_s: float = math.inf) -> int:
    round_s = max(round_ms, 1e-3) / 1e3
    rounds = min(max(budget_s / round_s, MIN_RUNS), MAX_RUNS)
    return int(max(1, min(rounds, limit_s / round_s)))
