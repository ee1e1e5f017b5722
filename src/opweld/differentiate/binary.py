"""Gradients of functions of two numbers that are more than arithmetic: one row each, the formulas
of PyTorch's autograd (derivatives.yaml), at zeros, NaN and equal operands, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ..ir.graph import Node
from ..ir.ops import Op
from .maker import Maker

Parts = tuple[Node | None, ...]


def _pow(m: Maker, node: Node, g: Node) -> Parts | None:
    """Of a base or an exponent that is a number nothing is asked."""
    x, exponent = node.inputs
    base, n = _number(x), _number(exponent)
    if n is not None:
        return (_of_base(m, g, x, n), None) if n != 0.0 else None
    if base is not None:
        return (None, m.mul(g, m.mul(node, math.log(base)))) if base > 0.0 else None
    power = m.mul(exponent, m(Op.POW, x, m.sub(exponent, 1.0)))
    of_x = m.where(m(Op.EQ, exponent, 0.0), 0.0, m.mul(g, power))
    stays = m(Op.LOGICAL_AND, m(Op.EQ, x, 0.0), m(Op.GE, exponent, 0.0))
    return of_x, m.where(stays, 0.0, m.mul(g, m.mul(node, m(Op.LOG, x))))


def _of_base(m: Maker, g: Node, x: Node, n: float) -> Node:
    power = x if n == 2.0 else m(Op.POW, x, n - 1.0)
    return m.mul(g, m.mul(power, n))


def _number(x: Node) -> float | None:
    value = x.attrs.value if x.op is Op.CONST else None
    return float(value) if isinstance(value, int | float) else None


def _xlogy(m: Maker, node: Node, g: Node) -> Parts:
    x, y = node.inputs
    nothing = m(Op.LOGICAL_AND, m(Op.EQ, x, 0.0), m(Op.LE, y, 0.0))
    return m.where(nothing, 0.0, m(Op.XLOGY, g, y)), m.div(m.mul(g, x), y)


def _logaddexp(m: Maker, node: Node, g: Node) -> Parts:
    x, y = node.inputs
    return tuple(
        m.div(g, m.add(m(Op.EXP, m.sub(other, one)), 1.0)) for one, other in ((x, y), (y, x))
    )


def _extreme(wins: Op) -> Callable[[Maker, Node, Node], Parts]:
    """Of FMAX and FMIN: a NaN never wins, and of equal ones the first has all of the gradient."""

    def row(m: Maker, node: Node, g: Node) -> Parts:
        x, y = node.inputs
        first = m(Op.LOGICAL_OR, m(wins, x, y), m(Op.ISNAN, y))
        return m.where(first, g, 0.0), m.where(first, 0.0, g)

    return row


def _rest(whole: Op) -> Callable[[Maker, Node, Node], Parts]:
    """Of FMOD and REMAINDER, whose quotients are rounded otherwise."""

    def row(m: Maker, node: Node, g: Node) -> Parts:
        x, y = node.inputs
        return g, m.mul(m(Op.NEG, g), m(whole, x, y))

    return row


def _copysign(m: Maker, node: Node, g: Node) -> Parts:
    x = node.inputs[0]
    return m.mul(g, m.where(m(Op.EQ, x, 0.0), 0.0, m.div(node, x))), None


def _neither(m: Maker, node: Node, g: Node) -> Parts:
    return None, None


ROWS: Mapping[Op, Callable[[Maker, Node, Node], Parts | None]] = {
    Op.POW: _pow,
    Op.XLOGY: _xlogy,
    Op.LOGADDEXP: _logaddexp,
    Op.FMAX: _extreme(Op.GE),
    Op.FMIN: _extreme(Op.LE),
    Op.FMOD: _rest(Op.DIV_TRUNC),
    Op.REMAINDER: _rest(Op.DIV_FLOOR),
    Op.COPYSIGN: _copysign,
    Op.DIV_FLOOR: _neither,
    Op.DIV_TRUNC: _neither,
}
