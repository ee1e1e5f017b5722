"""Blocks of timed calls: what the process that holds a model does for whoever times it.

A block is some calls, one after the other, each on inputs of its own that no call has seen before:
an entry of a pool, rolled by an offset that is drawn just before (`rolled`). So a result that was
kept, by address, version or value, is of no use. The inputs are made by `arm`, before any clock
starts; `block` then makes the calls, and made with `run=False` does all that surrounds them, the
flushes and the waiting, which is what the clock outside takes off.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from opweld.judge.load import Call
from opweld.judge.measure.clock import Action, Clock, nothing
from opweld.judge.measure.steps import stepping
from opweld.judge.process.memory import make_room
from opweld.judge.tree import tensors
from opweld.judge.verify.run import Run, of_outputs

# One entry for each call: the position in the pool, and how far to roll it.
Order = Sequence[tuple[int, int]]
Ready = Callable[[Call], Action]
# An element of an input, its value, and NaN.
Held = tuple[Tensor, Tensor, Tensor]

# Bound before a file that is judged is imported, like the clocks.
_ROLL, _EMPTY, _EMPTY_LIKE = torch.roll, torch.empty, torch.empty_like
_NO_GRAD = torch.no_grad
_COPY: Any = torch._C.TensorBase.copy_
_CLONE: Any = torch._C.TensorBase.clone


class Timed(Protocol):
    """A model that can be timed: in this process (`LocalTimed`), or in another one."""

    def prepare(self, calls: Sequence[Call], step: bool = False) -> None:
        """Take the pool that orders refer to; an empty one frees the one before. With `step` a call
        is a step of training (`steps.py`).
        """
        ...

    def arm(self, order: Order) -> None:
        """Make the inputs of the next block; what the last block kept is freed."""
        ...

    def block(self, run: bool) -> list[float]:
        """Milliseconds of each call by the clock inside; returns when the device is idle.

        Outputs are kept until they are released: memory that is used again at once is faster, and
        would favour one side. Without `run` the calls are left out.
        """
        ...

    def result(self, number: int) -> Run:
        """The outputs of one call of the last block."""
        ...

    def release(self) -> None:
        """Free the inputs and outputs of the last block."""
        ...

    def pause(self) -> None:
        """Stop the process, where it is another one, until `resume`."""
        ...

    def resume(self) -> None: ...

    def pin(self, processor: int | None) -> None:
        """Have the thread that calls run on this processor alone, or where it might before."""
        ...

    def busy_s(self) -> float:
        """Processor seconds that the process, where it is another one, and its children took."""
        ...


class LocalTimed:
    """A callable of this process.

    `ready(call)` gives what one timed call runs; what it does itself is not timed.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        clock: Clock,
        ready: Ready | None = None,
    ) -> None:
        self._model = model
        self._forward = ready or (lambda call: lambda: model(*call.args, **call.kwargs))
        self._ready = self._forward
        self._clock = clock
        self._pool: tuple[Call, ...] = ()
        self._armed: list[tuple[Call, list[Held]]] = []
        self._kept: list[Any] = []
        self._processors = os.sched_getaffinity(0)

    def prepare(self, calls: Sequence[Call], step: bool = False) -> None:
        self.release()
        self._pool = tuple(calls)
        self._ready = stepping(self._model) if step else self._forward

    def arm(self, order: Order) -> None:
        self.release()
        calls = [rolled(self._pool[position], offset) for position, offset in order]
        self._armed = [(call, held_back(call)) for call in calls]
        if order and _is_on_gpu(self._pool[0]):
            self._reserve(len(order))
        self._clock.wait()

    def block(self, run: bool) -> list[float]:
        self._kept = []
        with _NO_GRAD():
            times = [self._time(call, held, run) for call, held in self._armed]
        self._clock.wait()
        return times

    def result(self, number: int) -> Run:
        return of_outputs(self._kept[number])

    def release(self) -> None:
        self._armed, self._kept = [], []
        if self._pool:
            make_room(self._pool[0].tensors()[0].device)

    def pause(self) -> None:
        return

    def resume(self) -> None:
        return

    def pin(self, processor: int | None) -> None:
        os.sched_setaffinity(0, self._processors if processor is None else {processor})

    def busy_s(self) -> float:
        return 0.0

    def _reserve(self, count: int) -> None:
        """Memory for so many calls, left to PyTorch's allocator.

        What the driver has to allocate in a timed call may take as long as the call.
        """
        with _NO_GRAD():
            result = self._ready(rolled(self._pool[0], 0))()
        dense = [t for t in tensors(result) if t.layout is torch.strided]
        each = {s.data_ptr(): s for s in (t.untyped_storage() for t in dense)}.values()
        reserved = [
            _EMPTY(s.nbytes(), dtype=torch.uint8, device=s.device)
            for s in each
            for _ in range(count)
        ]
        del result, dense, each, reserved

    def _time(self, call: Call, held: list[Held], run: bool) -> float:
        def before() -> None:
            for element, value, nan in held:
                _COPY(element, value if run else nan)

        elapsed, result = self._clock.time(self._ready(call) if run else nothing, before)
        if run:
            self._kept.append(result)
        return elapsed


def _is_on_gpu(call: Call) -> bool:
    return any(t.is_cuda for t in call.tensors())


def held_back(call: Call) -> list[Held]:
    """One element of each floating-point input on a CUDA device, its value, and NaN in its place.

    The values are written behind the flush, on the current stream: work that does not wait for that
    stream, and so runs while the flush is timed by nobody, meets a NaN.
    """
    given = {id(t): t for t in call.tensors() if _is_held_back(t)}
    elements = [t[tuple(size // 2 for size in t.shape)] for t in given.values()]
    held = [(e, e.clone(), torch.full_like(e, math.nan)) for e in elements]
    for element, _, nan in held:
        element.copy_(nan)
    return held


def rolled(call: Call, offset: int) -> Call:
    """The call in memory of its own, its floating-point tensors rolled by `offset` elements.

    Along the first dimension by `offset` modulo its size, and by what is left along the last one,
    so that neither a row nor its place is as before, while values stay in the range that the model
    file gives them. Integers (indices, say) and single numbers stay. A tensor that is given twice
    is given twice again, strides and expanded dimensions stay too.
    """
    made: dict[int, Tensor] = {}

    def change(t: Tensor) -> Tensor:
        if id(t) not in made:
            made[id(t)] = _rolled(t, offset)
        return made[id(t)]

    return call.map(change)


def num_rolls(call: Call) -> int:
    """How many offsets give different inputs: those of the first tensor that is rolled."""
    for t in call.tensors():
        if _is_rolled(t):
            dense = compact(t)
            return dense.shape[0] * (dense.shape[-1] if t.dim() > 1 else 1)
    return 1


def _rolled(t: Tensor, offset: int) -> Tensor:
    if t.layout is not torch.strided:
        return t.clone()
    dense = compact(t)
    moved = _shifted(dense, offset) if _is_rolled(t) else _CLONE(dense)
    return moved if dense.shape == t.shape else moved.expand(t.shape)


def _shifted(t: Tensor, offset: int) -> Tensor:
    rows = t.shape[0]
    shifts, dims = [offset % rows], [0]
    if t.dim() > 1:
        shifts.append(offset // rows % t.shape[-1])
        dims.append(t.dim() - 1)
    moved = _ROLL(t, shifts, dims)
    like = _EMPTY_LIKE(t)
    return moved if moved.stride() == like.stride() else _COPY(like, moved)


def compact(t: Tensor) -> Tensor:
    """The tensor without the repetition of expanded dimensions: their size is 1."""
    for dim, (size, stride) in enumerate(zip(t.shape, t.stride(), strict=True)):
        if size > 1 and stride == 0:
            t = t.narrow(dim, 0, 1)
    return t


def _is_rolled(t: Tensor) -> bool:
    if t.layout is not torch.strided or not t.dim() or not t.numel():
        return False
    return t.is_floating_point() or t.is_complex()


def _is_held_back(t: Tensor) -> bool:
    return t.is_cuda and t.is_floating_point() and _is_rolled(t)
