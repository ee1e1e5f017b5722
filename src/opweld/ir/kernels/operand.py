"""What a functor is given of the tensors of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from ..expr import Size


@dataclass(frozen=True, slots=True)
class Cut:
    """Of one axis of a tensor `size` places from `begin` on: one, or as many as the results have
    along theirs.
    """

    axis: int
    begin: int
    size: Size


@dataclass(frozen=True, slots=True)
class FunctorOperand:
    """What the load of that name reads: a buffer, by its position, whose axes lie `along` those of
    the results; or a part of it.
    """

    load: str
    buffer: int
    along: tuple[int, ...]
    cuts: tuple[Cut, ...] = ()
