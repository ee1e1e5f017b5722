"""The original in float64: what the errors of both sides are measured against.

The inputs are the rounded ones, up-cast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import nn

from opweld.judge.load import Call, is_out_of_memory, leading_size
from opweld.judge.numerics.draws import Draws
from opweld.judge.numerics.precision import FLOAT64, NoReference
from opweld.judge.numerics.sample import Sample
from opweld.judge.process.memory import available_bytes
from opweld.judge.tree import tensors
from opweld.judge.verify.run import Run, collect
from opweld.judge.verify.seeds import stream

# Temporaries of the float64 run, as a multiple of inputs, parameters and outputs together.
_HEADROOM = 3
# On the CPU fresh memory costs more than arithmetic: elements of inputs and outputs above which
# rows go in blocks even where all would fit.
WHOLE_ELEMS = {"cpu": 2**22}


@dataclass(frozen=True, slots=True)
class Block:
    """Float64 leaves in the order of a `Run`'s: of all rows (`rows` None), or of some."""

    rows: slice | None
    leaves: list[Any]


class Reference:
    """Float64 runs of one model, whole where memory allows and by rows where it does not."""

    def __init__(
        self, model: nn.Module, device: torch.device, seed: int, max_elems: int | None = None
    ) -> None:
        """`max_elems` is what a `Sample` takes; None takes all."""
        self._max_elems = max_elems
        self._num_samples = 0
        self._model = model
        self._device = device
        self._seed = seed
        self._wide: nn.Module | None = None
        self._by_row: bool | None = None

    def refresh(self) -> None:
        """Take the parameters, buffers and the mode anew: they have changed."""
        self._wide = self._by_row = None

    def blocks(
        self,
        call: Call,
        run: Run,
        pass_over: Callable[[slice], bool] | None = None,
        draws: Draws = (),
    ) -> Iterator[Block]:
        """Float64 leaves for the leaves of `run`, which the model gave for `call`; `draws` are the
        random numbers that it drew.

        Where rows go in blocks and not all elements are wanted, blocks that `pass_over(rows)` finds
        close to eager's may be left out.

        Raises:
            NoReference: not in float64, or not in the memory there is.
        """
        if not draws and self._is_large(call, run) and self._rows_are_independent(call, run):
            yield from self._row_blocks(call, run, self._sample(pass_over))
            return
        if self._needed_bytes(call, run) > available_bytes(self._device):
            raise NoReference("the float64 run does not fit in memory, nor row by row")
        yield Block(None, self._run(call, run, draws))

    def _sample(self, pass_over: Callable[[slice], bool] | None) -> Sample | None:
        if self._max_elems is None or pass_over is None:
            return None
        self._num_samples += 1
        random = Random(stream(self._seed, "rows", self._num_samples))
        return Sample(self._max_elems, random, pass_over)

    def _is_large(self, call: Call, run: Run) -> bool:
        """Whether blocks of rows are better than the whole, or the only way."""
        limit = WHOLE_ELEMS.get(self._device.type, math.inf)
        fits = self._needed_bytes(call, run) < available_bytes(self._device)
        return _row_elems(call, run) > limit or not fits

    def _row_blocks(self, call: Call, run: Run, sample: Sample | None) -> Iterator[Block]:
        size, num_elems = leading_size(call) or 1, _row_elems(call, run)
        fitting = available_bytes(self._device) // (16 * _HEADROOM)
        limit = min(fitting, WHOLE_ELEMS.get(self._device.type, fitting))
        step = max(1, size * limit // max(1, num_elems))
        blocks = [slice(start, min(start + step, size)) for start in range(0, size, step)]
        for rows in sample.needed(blocks, num_elems) if sample else blocks:
            yield Block(rows, self._run(take_rows(call, rows), run))

    def _rows_are_independent(self, call: Call, run: Run) -> bool:
        """Whether a row's result is the same without the other rows, tried on two."""
        if self._by_row is None:
            size = leading_size(call)
            by_row = bool(size) and not run.changed_inputs and not run.changed_state
            by_row = by_row and all(t.dim() and t.shape[0] == size for t in tensors(run.leaves))
            self._by_row = by_row and size != 1 and self._same_alone(call, run)
        return self._by_row

    def _same_alone(self, call: Call, run: Run) -> bool:
        try:
            both = self._run(take_rows(call, slice(0, 2)), run)
            alone = self._run(take_rows(call, slice(1, 2)), run)
        except NoReference:
            return False
        return all(
            torch.allclose(b[1:2], a, rtol=1e-9, atol=1e-12, equal_nan=True)
            for b, a in zip(tensors(both), tensors(alone), strict=True)
        )

    def _run(self, call: Call, run: Run, draws: Draws = ()) -> list[Any]:
        try:
            return self._run_wide(call, run, draws)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise NoReference("the float64 run does not fit in memory") from error

    def _run_wide(self, call: Call, run: Run, draws: Draws) -> list[Any]:
        if self._wide is None:
            self._wide = FLOAT64.model(self._model)
        wide, wide_call = self._wide, call.map(FLOAT64.fresh)
        outputs = FLOAT64.run(wide, wide_call, self._seed, draws=draws)
        if run.changed_state:
            self.refresh()
        return collect(outputs, wide_call, wide, run.changed_inputs, run.changed_state)

    def _needed_bytes(self, call: Call, run: Run) -> int:
        held = (*call.tensors(), *tensors(run.leaves), *self._model.parameters())
        return 8 * _HEADROOM * sum(t.numel() for t in held)


def _row_elems(call: Call, run: Run) -> int:
    return sum(t.numel() for t in (*call.tensors(), *tensors(run.leaves)))


def take_rows(call: Call, rows: slice) -> Call:
    """Some rows of every tensor that has the leading size of the first."""
    size = leading_size(call)
    return call.map(lambda t: t[rows] if t.dim() and t.shape[0] == size else t)
