"""Calls beside other work on a CUDA device: what they leave running, what they do not wait for."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.load import Call
from opweld.judge.measure.blocks import compact
from opweld.judge.measure.clock import quantile
from opweld.judge.tree import leaves
from opweld.judge.verify.aliases import is_dense
from opweld.judge.verify.run import plainly

# About 15 ms: far longer than the host takes to launch what a small model launches.
_BUSY_CYCLES = 30_000_000
# A device without work answers much sooner; one that shares its time answers late twice.
_LEAST_LEFT_MS, _TIMES_QUIET = 1.0, 4.0

_SYNCHRONIZE: Any = getattr(torch._C, "_cuda_synchronize", None)
_SYNCHRONIZE_STREAM = torch.cuda.Stream.synchronize
_CURRENT_STREAM, _STREAM = torch.cuda.current_stream, torch.cuda.stream


class Leftovers:
    """Calls models, and notes how long the device works on when the current stream is done.

    The clock is the process's own: this finds streams that nobody waits for, not a false clock.
    """

    __slots__ = ("_left_ms", "_quiet_ms")

    def __init__(self) -> None:
        self._left_ms: list[float] = []
        self._quiet_ms: list[float] = []

    def forward(self, model: nn.Module, call: Call) -> Any:
        """The outputs of the model; the device has nothing left to do."""
        outputs = plainly(model, call)
        if torch.cuda.is_initialized():
            _SYNCHRONIZE_STREAM(_CURRENT_STREAM())
            self.add(_waited_ms(), _waited_ms())
        return outputs

    def add(self, left_ms: float, quiet_ms: float) -> None:
        """How long the device took to be idle, and how long the next such wait took."""
        self._left_ms.append(left_ms)
        self._quiet_ms.append(quiet_ms)

    def clause(self) -> str | None:
        """That most calls left work on other streams; None where they did not."""
        if not self._left_ms:
            return None
        left, quiet = (quantile(sorted(ms), 0.5) for ms in (self._left_ms, self._quiet_ms))
        if left <= _LEAST_LEFT_MS + _TIMES_QUIET * quiet:
            return None
        return f"a call leaves work on other streams, {left:.3g} ms when its own stream is done"


class BehindWork:
    """Calls models on a stream that is busy: inputs get their values only when its work is done.

    Until then they are NaN, or zero for integers, and that is what work meets that does not wait
    for the stream. `results` are copies of the outputs, made in the stream right behind the call,
    whose work therefore need not be done when another stream does it; None for what is no plain
    tensor.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.results: list[Tensor | None] = []
        self._stream = stream

    def warm_up(self, model: nn.Module, call: Call) -> None:
        """One call on other values: to load or to allocate at first might wait for the device."""
        with _STREAM(self._stream), torch.no_grad():
            plainly(model, call.map(_next_rows))
        _SYNCHRONIZE()

    def forward(self, model: nn.Module, call: Call) -> Any:
        """The outputs of the model, of which the last may not be there yet."""
        targets = [compact(t.detach()).data for t in call.tensors() if is_dense(t)]
        held = [(target, target.clone()) for target in targets]
        for target, values in held:
            target.copy_(values)  # loads what copies, which might wait for the device, too
            hide(target)
        torch.cuda._sleep(1)
        _SYNCHRONIZE()
        with _STREAM(self._stream):
            torch.cuda._sleep(_BUSY_CYCLES)
            for target, values in held:
                target.copy_(values)
            outputs = plainly(model, call)
            found = [leaf for _, leaf in leaves(outputs)]
            self.results = [leaf.detach().clone() if is_dense(leaf) else None for leaf in found]
        return outputs

    def take(self, found: list[Any]) -> None:
        """Put the copies in the place of the first leaves of a run."""
        for position, result in enumerate(self.results):
            if result is not None:
                found[position] = result


def hide(t: Tensor) -> None:
    """NaN in place of the values; zeros, which are valid indices, where there is no NaN."""
    t.fill_(math.nan if t.is_floating_point() or t.is_complex() else 0)


def _waited_ms() -> float:
    start = perf_counter()
    _SYNCHRONIZE()
    return (perf_counter() - start) * 1e3


def _next_rows(t: Tensor) -> Tensor:
    return t.roll(1, 0) if t.dim() else t.clone()
