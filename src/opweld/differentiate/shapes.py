"""Gradients of reductions, of scans, and of operations that only move elements: one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..ir.attrs import FlipAttrs, PadAttrs, ScanAttrs, SliceAttrs
from ..ir.expr import Size, product
from ..ir.graph import Node
from ..ir.ops import Op
from .folds import first_extreme, product_of, running_log_of_sum
from .indices import gather
from .maker import Maker
from .windows import dilated, fitted, window

Parts = tuple[Node | None, ...]


def _permute(m: Maker, node: Node, g: Node) -> Parts:
    dims = node.attrs.dims
    return (m.permuted(g, tuple(dims.index(axis) for axis in range(len(dims)))),)


def _reshape(m: Maker, node: Node, g: Node) -> Parts:
    return (m.reshaped(g, node.inputs[0].type.shape),)


def _expand(m: Maker, node: Node, g: Node) -> Parts:
    return (m.summed_to(g, node.inputs[0].type.shape),)


def _flip(m: Maker, node: Node, g: Node) -> Parts:
    return (m.arena.make(Op.FLIP, g, attrs=FlipAttrs(node.attrs.dims)),)


def _slice(m: Maker, node: Node, g: Node) -> Parts | None:
    a, shape = node.attrs, node.inputs[0].type.shape
    if a.step != 1:
        return _steps(m, node, g)
    none: tuple[Size, ...] = (0,) * len(shape)
    before, after = list(none), list(none)
    before[a.dim], after[a.dim] = a.start, shape[a.dim] - a.start - a.length
    attrs = PadAttrs(tuple(before), tuple(after), 0.0)
    return (m.arena.make(Op.PAD, g, attrs=attrs),)


def _steps(m: Maker, node: Node, g: Node) -> Parts | None:
    a, size = node.attrs, node.inputs[0].type.shape[node.attrs.dim]
    if not all(isinstance(each, int) for each in (a.start, a.length, size)):
        return None
    return (fitted(m, dilated(m, g, a.dim, a.step, 0.0), a.dim, -a.start, size, 0.0),)


def _cat(m: Maker, node: Node, g: Node) -> Parts:
    start: Size = 0
    found: list[Node] = []
    for operand in node.inputs:
        length = operand.type.shape[node.attrs.dim]
        found.append(_cut(m, g, node.attrs.dim, start, length))
        start = start + length
    return tuple(found)


def _pad(m: Maker, node: Node, g: Node) -> Parts:
    for axis, before in enumerate(node.attrs.before):
        g = _cut(m, g, axis, before, node.inputs[0].type.shape[axis])
    return (g,)


def _cut(m: Maker, x: Node, axis: int, start: Size, length: Size) -> Node:
    if start == 0 and length == x.type.shape[axis]:
        return x
    return m.arena.make(Op.SLICE, x, attrs=SliceAttrs(axis, start, 1, length))


def _sum(m: Maker, node: Node, g: Node) -> Parts:
    return (m.expanded(g, node.inputs[0].type.shape),)


def _count(node: Node) -> Size:
    """The elements of a row."""
    return product(node.inputs[0].type.shape[axis] for axis in node.attrs.axes)


def _mean(m: Maker, node: Node, g: Node) -> Parts:
    count = m.arena.const(_count(node), g.type.dtype)
    return (m.expanded(m.div(g, count), node.inputs[0].type.shape),)


def _devsq(m: Maker, node: Node, g: Node) -> Parts:
    """That of the mean inside is 0: differences from it add up to 0."""
    x = node.inputs[0]
    difference = m.sub(x, m.reduced(Op.MEAN, x, node.attrs.axes))
    return (m.mul(m.mul(g, 2.0), difference),)


def _extreme(m: Maker, node: Node, g: Node) -> Parts | None:
    """Equal extremes share it, unless the first has it."""
    if node.attrs.first:
        return first_extreme(m, node, g)
    x = node.inputs[0]
    is_extreme = m(Op.EQ, x, node)
    one = m.where(is_extreme, m.arena.const(1.0, g.type.dtype), 0.0)
    share = m.div(g, m.reduced(Op.SUM, one, node.attrs.axes))
    return (m.where(is_extreme, share, 0.0),)


def _cumsum(m: Maker, node: Node, g: Node) -> Parts:
    a = node.attrs
    attrs = ScanAttrs(a.axis, not a.reverse, a.exclusive)
    return (m.arena.make(Op.CUMSUM, g, attrs=attrs),)


ROWS: Mapping[Op, Callable[[Maker, Node, Node], Parts | None]] = {
    Op.PERMUTE: _permute,
    Op.RESHAPE: _reshape,
    Op.EXPAND: _expand,
    Op.FLIP: _flip,
    Op.SLICE: _slice,
    Op.CAT: _cat,
    Op.PAD: _pad,
    Op.WINDOW: window,
    Op.SUM: _sum,
    Op.MEAN: _mean,
    Op.DEVSQ: _devsq,
    Op.AMAX: _extreme,
    Op.AMIN: _extreme,
    Op.CUMSUM: _cumsum,
    Op.PROD: product_of,
    Op.LOGCUMSUMEXP: running_log_of_sum,
    Op.GATHER: gather,
}
