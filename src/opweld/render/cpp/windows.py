"""Elements of windows that lie outside of what they slide over, in C++: they are left out.

Where padding changes no fold (-inf no maximum, 0 no sum), lanes need not ask about it one by one:
those inside are neighbours, and g++ makes vectors of a loop over them that reads without a guard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.expr import (
    Bounds,
    Size,
    at_least_zero,
    coefficient,
    substitute_unsimplified,
    symbol,
    upper,
)
from ...ir.kernels.kernel import Arg, Condition, Const, Definition, Let, Load, Test
from ...ir.kernels.reduction import Fold, Folding, Walk
from ...ir.numpy.interpret import NUMPY_DTYPES
from ...ir.ops import Op
from ...ir.types import DType
from ..c import grouped
from .statements import comparisons, text_of


@dataclass(frozen=True, slots=True)
class Inside:
    """The elements that change a fold: those where `test` holds."""

    test: Test
    folding: Folding

    def unguarded(self, definition: Definition) -> Definition:
        if isinstance(definition, Load) and definition.guard == self.test.condition:
            return replace(definition, guard=())
        return definition

    def statement(self, definition: Definition) -> str | None:
        """Of what is known there."""
        known = f"const bool {definition.name} = true;"
        return known if definition == self.test else None

    @property
    def of_strip(self) -> list[str]:
        """Comparisons that all lanes share."""
        return [text for b in self._of(lanes=False) for text in comparisons(b, self._bounds)]

    @property
    def lanes(self) -> tuple[list[str], list[str]]:
        """The bounds of the lanes: none below any of the first, none from any of the second on."""
        first, last = list[str](), list[str]()
        var = self.folding.kept[-1].var
        for between in self._of(lanes=True):
            step = coefficient(between.expr, var)
            start = substitute_unsimplified(between.expr, {var: symbol("strip")})
            if not at_least_zero(between.expr - between.low, self._bounds):
                first.append(_lanes_before(between.low - start, step))
            if not at_least_zero(
                between.high - 1 - upper(between.expr, self._bounds), self._bounds
            ):
                last.append(_lanes_before(between.high - start, step))
        return first, last

    def _of(self, lanes: bool) -> Condition:
        var = self.folding.kept[-1].var
        return tuple(b for b in self.test.condition if (coefficient(b.expr, var) != 0) is lanes)

    @property
    def _bounds(self) -> Bounds:
        return {loop.var: loop.extent for loop in (*self.folding.kept, *self.folding.reduced)}


def _lanes_before(limit: Size, step: Size | None) -> str:
    """How many lanes come before the first that is `limit` or more behind the strip's first."""
    assert isinstance(step, int), "lanes are neighbours"
    text = grouped(text_of(limit + step - 1))
    return text if step == 1 else f"{text} / {step}"


def inside_of(folding: Folding, walk: Walk) -> Inside | None:
    """Where elements change a fold, if they do not everywhere and the lanes there are neighbours.

    Lanes lie across: they are neighbours in the innermost kept loop.
    """
    if not walk.folds or walk.kernel.stores:
        return None
    for definition in walk.kernel.definitions:
        if isinstance(definition, Test) and _has_neighbours(folding, definition.condition):
            if all(_is_idle(fold, walk, definition) for fold in walk.folds):
                return Inside(definition, folding)
    return None


def _has_neighbours(folding: Folding, condition: Condition) -> bool:
    steps = [coefficient(between.expr, folding.kept[-1].var) for between in condition]
    return all(isinstance(step, int) and step >= 0 for step in steps)


def _is_idle(fold: Fold, walk: Walk, test: Test) -> bool:
    """Whether an element where the test fails leaves the fold as it is."""
    element = walk.kernel.element
    lets = {let.name: let for let in element.body}
    dtype, arg = element.results[fold.result]
    value = _without(arg, lets, test.name)
    return value is not None and bool(value == _identity(fold.op, dtype))


def _without(arg: Arg, lets: Mapping[str, Let], test: str) -> Any:
    """The number that a value is where the test fails, or None where it is none."""
    if isinstance(arg, Const):
        return arg.value
    if arg.text == test:
        return False
    let = lets.get(arg.text)
    if let is None or let.op not in (Op.WHERE, Op.ISNAN):
        return None
    chosen = _without(let.args[0], lets, test)
    if chosen is None:
        return None
    if let.op is Op.ISNAN:
        return math.isnan(chosen)
    return _without(let.args[1 if chosen else 2], lets, test)


def _identity(op: Op, dtype: DType) -> Any:
    if op in (Op.SUM, Op.PROD, Op.ANY, Op.ALL):
        return {Op.SUM: 0, Op.PROD: 1, Op.ANY: False, Op.ALL: True}[op]
    if op not in (Op.AMAX, Op.AMIN, Op.ARGMAX, Op.ARGMIN):
        return None
    largest = op in (Op.AMAX, Op.ARGMAX)
    if dtype.is_float:
        return -math.inf if largest else math.inf
    limits = np.iinfo(NUMPY_DTYPES[dtype])
    return int(limits.min if largest else limits.max)
