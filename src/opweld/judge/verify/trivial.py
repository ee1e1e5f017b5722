"""Candidates that compute nothing, held to the tolerance of a check.

Where one of them would pass, the check proves nothing about that output. A candidate has to pass
every check, so it is enough that each of these fails one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from opweld.judge.numerics.compare import ErrorSums, pieces_of
from opweld.judge.numerics.grade import grade
from opweld.judge.numerics.outputs import DELIVERED, as_tensor, is_float, judged_as
from opweld.judge.numerics.reference import Block
from opweld.judge.verify.run import Run

ZEROS, MEAN, COPY = "zeros", "the mean", "a copy of input"
OTHER, ROLLED = "the output of other inputs", "its own rows in another order"
Index = tuple[slice | int, ...]
# (output, candidate)
Pass = tuple[str, str]


@dataclass(slots=True)
class _Rival:
    """One candidate for one output; `piece(index)` is what it would return there."""

    leaf: int
    name: str
    piece: Callable[[Index], Tensor]
    sums: ErrorSums | None = field(default=None)


class Trivial:
    """The trivial candidates for each output of a run that still pass, block by block."""

    def __init__(self, eager: Run, inputs: list[Tensor], other: Run | None = None) -> None:
        """`inputs` are those of the run; `other` is the original's run on other inputs."""
        self._eager = eager
        self._rivals = [
            rival
            for leaf in range(len(eager.leaves))
            for rival in _rivals(leaf, eager, inputs, other)
        ]
        self.tried = self.survivors

    def add(self, block: Block | None = None) -> None:
        """Hold those left to float64 leaves; without a block, or a useful one, to eager's."""
        self._rivals = [rival for rival in self._rivals if self._passes(rival, block)]

    @property
    def survivors(self) -> frozenset[Pass]:
        """Which candidate would pass for which output."""
        return frozenset((self._eager.names[rival.leaf], rival.name) for rival in self._rivals)

    def _passes(self, rival: _Rival, block: Block | None) -> bool:
        """Whether it passes on everything so far; the first piece on which it does not ends it."""
        eager = as_tensor(self._eager.leaves[rival.leaf])
        rows, reference = None, eager
        if block is not None:
            wide = as_tensor(block.leaves[rival.leaf], torch.float64)
            right = eager if block.rows is None else eager[block.rows]
            if judged_as(wide, right) is not None:
                rows, reference = block.rows, wide
        for index in pieces_of(reference):
            place = _shifted(index, rows)
            if not _fits(rival, rival.piece(place), eager[place], reference[index]):
                return False
        return True


def unjudged(left: Iterable[Pass]) -> tuple[str, ...]:
    """One sentence for each candidate that is left after all checks.

    Zeros and the mean say the same of a constant output; the first of them stands for all.
    """
    left = frozenset(left)
    return tuple(
        f"{output}: {name} would pass every check"
        for output, name in sorted(left)
        if not (name != ZEROS and (output, ZEROS) in left)
        and not (name in (OTHER, ROLLED) and (output, MEAN) in left)
    )


def _fits(rival: _Rival, new: Tensor, eager: Tensor, reference: Tensor) -> bool:
    if not is_float(eager):
        return bool(((new == eager) | (new == reference)).all())
    if rival.sums is None:
        rival.sums = ErrorSums(eager.dtype)
    rival.sums.add(new, eager, reference.double())
    return grade(rival.sums.figures()) in DELIVERED


def _rivals(leaf: int, eager: Run, inputs: list[Tensor], other: Run | None) -> Iterator[_Rival]:
    if not isinstance(eager.leaves[leaf], Tensor):
        return
    value = as_tensor(eager.leaves[leaf])
    if value.is_complex() or value.numel() == 0:
        return
    yield _Rival(leaf, ZEROS, _filled(value, 0))
    if is_float(value) and value.numel() > 1:
        yield _Rival(leaf, MEAN, _filled(value, _mean(value)))
    for position, t in enumerate(inputs):
        if t.shape == value.shape and t.dtype == value.dtype and t.layout is torch.strided:
            yield _Rival(leaf, f"{COPY} {position}", t.__getitem__)
    if other is not None and leaf < len(other.leaves):
        found = as_tensor(other.leaves[leaf])
        if found.shape == value.shape and found.dtype == value.dtype:
            yield _Rival(leaf, OTHER, found.__getitem__)
    if value.dim() and value.shape[0] > 1:
        yield _Rival(leaf, ROLLED, _rolled(value))


def _filled(like: Tensor, number: float) -> Callable[[Index], Tensor]:
    return lambda index: torch.full_like(like[index], number)


def _shifted(index: tuple[slice | int, ...], rows: slice | None) -> tuple[slice | int, ...]:
    """The index into a tensor of what has `index` in the rows `rows` of it."""
    if rows is None:
        return index
    if not index:
        return (rows,)
    first, rest = index[0], index[1:]
    if isinstance(first, slice):
        return (slice(rows.start + first.start, min(rows.start + first.stop, rows.stop)), *rest)
    return (rows.start + first, *rest)


def _rolled(value: Tensor) -> Callable[[Index], Tensor]:
    """Each row is the next one, the last the first, without a copy of the whole."""
    size = value.shape[0]

    def piece(index: Index) -> Tensor:
        if not index:
            return value.roll(-1, 0)
        first: Any = index[0]
        if isinstance(first, int):
            return value[((first + 1) % size, *index[1:])]
        rows = torch.arange(first.start, min(first.stop, size), device=value.device)
        return value[(rows + 1) % size][(slice(None), *index[1:])]

    return piece


def _mean(value: Tensor) -> float:
    """The mean of the finite elements; 0 where there is none."""
    total, count = 0.0, 0
    for index in pieces_of(value):
        piece = value[index].double()
        finite = piece.isfinite()
        total += float(torch.where(finite, piece, 0.0).sum())
        count += int(finite.sum())
    return total / max(1, count)
