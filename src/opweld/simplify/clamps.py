"""Clamps that cannot act, and clamps that are one.

The derivative of a clamp passes at its bounds, so a clamp that never changes its operand may go.
That of relu and abs is 0 at zero: they go only where their operand is positive, or its own
derivative vanishes where it is zero.
"""

from __future__ import annotations

import math

from ..ir.graph import Node
from ..ir.ops import Op
from ..ir.rules.pattern import Match
from ..ir.rules.rewrite import Condition, Domain, Numerics, Rule
from .range import Range, range_of
from .terms import (
    a,
    absolute,
    b,
    c,
    clamp_max,
    clamp_min,
    maximum,
    minimum,
    nan_to_num,
    relu,
    x,
)

EXACT = Numerics.EXACT
FLOAT, NUMBER = Domain.FLOAT, Domain.NUMBER

# Where the result is 0, autograd's derivative of these is 0 too, underflow included.
_FLAT_AT_ZERO = (Op.RELU, Op.ABS, Op.SIGMOID, Op.HARDSIGMOID, Op.EXP, Op.EXP2)
_REARRANGES = (Op.PERMUTE, Op.RESHAPE, Op.EXPAND, Op.SLICE, Op.FLIP, Op.WINDOW)


def _is_flat_at_zero(node: Node) -> bool:
    while node.op in _REARRANGES:
        node = node.inputs[0]
    return node.op in _FLAT_AT_ZERO


def _range(match: Match) -> Range:
    return range_of(match.node("x"))


def _bound(match: Match, name: str = "c") -> float:
    """The constant as kernels have it, NaN if it is none."""
    bound = range_of(match.node(name))
    return math.nan if bound.nan else bound.low


def _not_negative_and_smooth(match: Match) -> bool:
    values = _range(match)
    return values.low > 0 or (values.low == 0 and _is_flat_at_zero(match.node("x")))


def _both_are_numbers(match: Match) -> bool:
    return not math.isnan(_bound(match, "a")) and not math.isnan(_bound(match, "b"))


at_most_c = Condition("x <= c always", lambda m: _range(m).high <= _bound(m))
at_least_c = Condition("x >= c always", lambda m: _range(m).low >= _bound(m))
below_c = Condition("x < c always", lambda m: _range(m).high < _bound(m))
above_c = Condition("x > c always", lambda m: _range(m).low > _bound(m))
never_nan = Condition("x is never NaN", lambda m: not _range(m).nan)
finite = Condition("x is always finite", lambda m: _range(m).is_finite)
numbers = Condition("a and b are no NaN", _both_are_numbers)
ordered = Condition("a < b", lambda m: _bound(m, "a") < _bound(m, "b"))
smooth = Condition("x >= 0 always, with derivative 0 where it is 0", _not_negative_and_smooth)
positive_zero = Condition("x is never -0.0", lambda m: not _range(m).may_be_negative_zero)

MERGED = (
    Rule(
        "clamp-max-max",
        clamp_max(clamp_max(x, a), b),
        clamp_max(x, minimum(a, b)),
        EXACT,
        numbers,
    ),
    Rule(
        "clamp-min-min",
        clamp_min(clamp_min(x, a), b),
        clamp_min(x, maximum(a, b)),
        EXACT,
        numbers,
    ),
    Rule(
        "clamp-order",
        clamp_min(clamp_max(x, b), a),
        clamp_max(clamp_min(x, a), b),
        EXACT,
        ordered,
    ),
)
IDLE = (
    Rule("clamp-max-idle", clamp_max(x, c), x, EXACT, at_most_c),
    Rule("clamp-min-idle", clamp_min(x, c), x, EXACT, at_least_c),
    # At a tie, PyTorch halves the derivative of these two: they may go only where there is none.
    Rule("minimum-idle", minimum(x, c), x, EXACT, below_c),
    Rule("maximum-idle", maximum(x, c), x, EXACT, above_c),
    Rule("relu-idle", relu(x), x, EXACT, smooth, domain=FLOAT),
    Rule("abs-idle", absolute(x), x, EXACT, smooth & positive_zero, domain=FLOAT),
    Rule("nan-to-num-idle", nan_to_num(x, attrs="p"), x, EXACT, finite),
)

CLAMPS: tuple[Rule, ...] = (*IDLE, *MERGED)
