"""In which precision ModelNew computes, as its errors show beside those of lowered originals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from opweld.judge.load import Call
from opweld.judge.numerics.draws import Draws
from opweld.judge.numerics.effective import (
    LOWERINGS,
    Lowered,
    Observation,
    faithful,
    name_of,
    narrower,
)
from opweld.judge.numerics.lowered import lowered_run, squared_error
from opweld.judge.numerics.outputs import as_tensor
from opweld.judge.numerics.reference import Block, Reference
from opweld.judge.verify.run import Run


class Observed:
    """Errors of ModelNew, each beside those of the original lowered to a format on the same inputs.

    It `is_whole` unless an error was seen last that nothing could be held beside.
    """

    def __init__(self, seed: int) -> None:
        self.is_whole = True
        self._seed = seed
        self._seen: list[Observation] = []

    def precision(self, dtypes: Iterable[str]) -> str | None:
        """Its name, for outputs of these dtypes; None where errors beyond eager's were, and not
        what would cause them.
        """
        seen = [each for each in self._seen if not each.is_faithful]
        if not seen and not self.is_whole:
            return None
        return name_of(seen) if seen else faithful(dtypes)

    def add(
        self,
        model: nn.Module,
        reference: Reference,
        call: Call,
        draws: Draws,
        eager: Run,
        worst: tuple[int, float],
    ) -> None:
        """Takes in the position of an output, and ModelNew's rms error there.

        Raises:
            NoReference: the original does not run in float64.
        """
        blocks = list(reference.blocks(call, eager, draws=draws))
        with Lowered(LOWERINGS[0]):
            rounded = list(reference.blocks(call, eager, draws=draws))
        position, rms = worst
        leaf = as_tensor(eager.leaves[position])
        runs = [
            (lowering.name, lowered_run(model, call, self._seed, eager, lowering))
            for lowering in narrower(leaf.dtype)
        ]
        *errors, of_eager = _errors([*(run for _, run in runs), eager], blocks, position)
        marks: dict[str, tuple[float, ...]] = {}
        for (name, _), error in zip(runs, errors, strict=True):
            marks[name] = (*marks.get(name, ()), error)
        own = _rms_between(blocks, rounded, position) if leaf.dtype is torch.float32 else 0.0
        self._seen.append(Observation(rms, marks, eager_rms=of_eager, rounded_rms=own))
        self.is_whole = True


def _errors(runs: Sequence[Run], blocks: Sequence[Block], position: int) -> list[float]:
    """The rms error of each run in one output."""
    squares, count = [0.0] * len(runs), 0
    for block in blocks:
        reference = as_tensor(block.leaves[position], torch.float64).double()
        rows = slice(None) if block.rows is None else block.rows
        for number, run in enumerate(runs):
            squares[number] += squared_error(as_tensor(run.leaves[position]), rows, reference)
        count += reference.numel()
    return [math.sqrt(square / max(1, count)) for square in squares]


def _rms_between(blocks: Iterable[Block], others: Iterable[Block], position: int) -> float:
    square, count = 0.0, 0
    for block, other in zip(blocks, others, strict=True):
        reference = as_tensor(block.leaves[position], torch.float64).double()
        square += squared_error(as_tensor(other.leaves[position]), slice(None), reference)
        count += reference.numel()
    return math.sqrt(square / max(1, count))
