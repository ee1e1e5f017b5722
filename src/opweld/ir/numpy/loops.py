"""The meaning of a loop: its body, once a turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..loop import Loop, Parts
from .meaning import Array

Body = Callable[[Mapping[str, Array]], tuple[Array, ...]]
"""Gives the outputs of the body for its inputs and weights, by their accesses."""


def loop_results(loop: Loop, operands: Sequence[Array], body: Body) -> tuple[Array, ...]:
    """The results of a loop's node."""
    names = [source.attrs.access for source in (*loop.body.inputs, *loop.body.weights)]
    carried, rest = list(operands[: loop.carried]), operands[loop.carried :]
    outputs: list[tuple[Array, ...]] = []
    for turn in range(loop.turns):
        parts = [_part(x, part, turn) for x, part in zip(rest, loop.parts, strict=False)]
        given = [*carried, *parts, *rest[len(parts) :]]
        outputs.append(body(dict(zip(names, given, strict=True))))
        carried = list(outputs[-1][: loop.carried])
    joined = []
    for each in loop.collected:
        values = [of_turn[each.output] for of_turn in outputs][:: -1 if each.backwards else 1]
        join = np.stack if each.stacked else np.concatenate
        joined.append(join(values, axis=each.axis))
    return (*joined, *(outputs[-1][output] for output in loop.last))


def _part(x: Array, part: Parts, turn: int) -> Array:
    first = part.first + turn * part.step
    if not part.length:
        return np.take(x, first, axis=part.axis)
    return np.take(x, np.arange(first, first + part.length), axis=part.axis)
