"""What a softmax and its relatives look like in a graph.

In all of them the largest element is taken off before exp, which changes no value: gradients
through it add up to 0 in mathematics, and to roundings where they are computed.
"""

from __future__ import annotations

from ..graph import Node
from ..ops import Op
from .pattern import Apply, Match, Pattern, Var, call
from .rewrite import Condition

x = Var("x")
_exp, _log, _where = call(Op.EXP), call(Op.LOG), call(Op.WHERE)


def _total(of: Pattern) -> Apply:
    return call(Op.SUM)(of, attrs="axes")


_largest = call(Op.AMAX)(x, attrs="largest")
_shifted = x - _largest
_is_infinite = call(Op.ISINF)(_largest)
_finite = _where(_is_infinite, 0.0, _largest)
# What is exp(x - largest) summed up, in a walk of its own or in one with the largest.
_sum_of_powers = call(Op.SUMEXP)(x, attrs="axes")
_sums_of_powers = (_total(_exp(_shifted)), _sum_of_powers)
_sums_of_finite_powers = (
    _total(_exp(x - _finite)),
    _where(_is_infinite, call(Op.MAXIMUM)(_largest, 0.0), _sum_of_powers),
)

SOFTMAX: tuple[Apply, ...] = tuple(_exp(_shifted) / total for total in _sums_of_powers)
LOG_SOFTMAX: tuple[Apply, ...] = tuple(_shifted - _log(total) for total in _sums_of_powers)
LOGSUMEXP: tuple[Apply, ...] = tuple(_log(total) + _finite for total in _sums_of_finite_powers)


def axes_of(match: Match) -> tuple[int, ...]:
    """The axes of a row."""
    found: tuple[int, ...] = match.attrs("axes").axes
    return found


def operand_of(match: Match) -> Node:
    return match.node("x")


SAME_AXES = Condition(
    "both reduce the same axes", lambda match: axes_of(match) == match.attrs("largest").axes
)
