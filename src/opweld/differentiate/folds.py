"""Gradients of products, of first extremes and of running sums of powers, along axes."""

from __future__ import annotations

import math

from ..ir.attrs import IotaAttrs, ScanAttrs
from ..ir.expr import Size
from ..ir.graph import Node
from ..ir.ops import Op
from ..ir.types import DType
from .maker import Maker

Parts = tuple[Node | None, ...]


def product_of(m: Maker, node: Node, g: Node) -> Parts:
    """That of an element is the product of the others: with one zero among the factors it has that
    of the others alone, with more nobody has any.
    """
    x, axes = node.inputs[0], node.attrs.axes
    is_zero = m(Op.EQ, x, 0.0)
    zeros = m.reduced(Op.SUM, m.where(is_zero, m.arena.const(1.0, x.type.dtype), 0.0), axes)
    of_others = m.reduced(Op.PROD, m.where(is_zero, 1.0, x), axes)
    alone = m(Op.LOGICAL_AND, m(Op.EQ, zeros, 1.0), is_zero)
    without = m.where(alone, m.mul(g, of_others), 0.0)
    return (m.where(m(Op.EQ, zeros, 0.0), m.div(m.mul(g, node), x), without),)


def first_extreme(m: Maker, node: Node, g: Node) -> Parts | None:
    """The first of equal extremes has all of it; of NaN, too."""
    x, axes = node.inputs[0], node.attrs.axes
    place = m.reduced(Op.ARGMAX if node.op is Op.AMAX else Op.ARGMIN, x, axes)
    numbers: Node | None = None
    below: Size = 1
    for axis in reversed(axes):
        size = x.type.shape[axis]
        along = m.arena.iota(IotaAttrs(0, 1, size), DType.I64)
        shape = tuple(size if each == axis else 1 for each in range(x.type.rank))
        part = m.reshaped(along, shape)
        part = part if below == 1 else m.mul(part, m.arena.const(below, DType.I64))
        numbers = part if numbers is None else m.add(numbers, part)
        below = below * size
    return None if numbers is None else (m.where(m(Op.EQ, numbers, place), g, 0.0),)


def running_log_of_sum(m: Maker, node: Node, g: Node) -> Parts:
    """Gradients of both signs apart, as logarithms, so that no power is out of range."""
    x, a = node.inputs[0], node.attrs
    attrs = ScanAttrs(a.axis, not a.reverse, a.exclusive)
    sizes = m(Op.LOG, m(Op.ABS, g))

    def of_sign(side: Op) -> Node:
        logs = m.where(m(side, g, 0.0), sizes, -math.inf)
        behind = m.arena.make(Op.LOGCUMSUMEXP, m.sub(logs, node), attrs=attrs)
        return m(Op.EXP, m.add(behind, x))

    return (m.sub(of_sign(Op.GT), of_sign(Op.LT)),)
