"""The registered kernels that a call runs: counted, and each timed alone on the arguments it got.

A kernel is an op whose namespace begins with `opweld_`. A file written by hand may have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from opweld.judge.load import Call
from opweld.judge.measure.clock import time_interleaved
from opweld.judge.measure.limits import touched_bytes
from opweld.judge.tree import tensors
from opweld.judge.values import KernelTiming

NAMESPACE = "opweld_"
_BUDGET_S = 0.5


@dataclass(slots=True)
class Launch:
    """One op on arguments of one shape, the first ones seen, and how often it was called."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    calls: int = 1

    @property
    def name(self) -> str:
        return str(self.op.overloadpacket.__name__)

    def touched_bytes(self) -> int:
        """Each tensor read or written once; one that is written in place is read before."""
        held = tensors([self.args, self.kwargs, self.result])
        once = {(t.data_ptr(), touched_bytes(t)) for t in held}
        return sum(size for _, size in once) + sum(map(touched_bytes, self.written_in_place()))

    def written_in_place(self) -> list[torch.Tensor]:
        formals = zip(self.op._schema.arguments, self.args, strict=False)
        return tensors(
            [a for formal, a in formals if formal.alias_info and formal.alias_info.is_write]
        )


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.launches: dict[Any, Launch] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func.namespace.startswith(NAMESPACE):
            self._record(func, args, kwargs, result)
        return result

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        shapes = tuple((t.shape, t.stride(), t.dtype) for t in tensors([args, kwargs]))
        known = self.launches.get((func, shapes))
        if known:
            known.calls += 1
            return
        self.launches[func, shapes] = Launch(func, args, kwargs, result)


def record(model: nn.Module, call: Call) -> tuple[Launch, ...]:
    """The launches of one forward without gradients, in order of their first call."""
    with torch.no_grad(), _Recorder() as recorder:
        model(*call.args, **call.kwargs)
    return tuple(recorder.launches.values())


def count(launches: tuple[Launch, ...]) -> dict[str, int]:
    """Calls by op name."""
    calls: dict[str, int] = {}
    for launch in launches:
        calls[launch.name] = calls.get(launch.name, 0) + launch.calls
    return calls


def time_launch(
    launch: Launch, device: torch.device, copy_gbps: float, num_runs: int | None
) -> KernelTiming:
    """One kernel alone, by the protocol of the whole; its limit is that of its bytes."""
    with torch.no_grad():
        samples = time_interleaved(
            {"kernel": lambda: launch.op(*launch.args, **launch.kwargs)},
            device,
            _BUDGET_S,
            num_runs,
        )
    num_bytes, ms = launch.touched_bytes(), samples["kernel"].median
    least_ms = num_bytes / copy_gbps / 1e6
    return KernelTiming(
        name=launch.name,
        ms=ms,
        bytes=num_bytes,
        limit_percent=100 * least_ms / ms if ms else None,
        calls=launch.calls,
    )


def untimed(launch: Launch) -> KernelTiming:
    """The row of a kernel that was only counted."""
    return KernelTiming(launch.name, None, launch.touched_bytes(), None, launch.calls)
