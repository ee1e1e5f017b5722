"""Gradients of matrix products: two products each, and a sum for what was added."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..ir.attrs import Operand
from ..ir.graph import Node
from .maker import Maker

Parts = tuple[Node | None, ...]


def _linear(m: Maker, node: Node, g: Node) -> Parts:
    x, weight, *bias = node.inputs
    of_weight = m.matmul(m.transposed(m.rows(g)), m.rows(x))
    of_bias = [m.summed_to(g, each.type.shape) for each in bias]
    # In memory a tensor of more axes is a matrix of as many rows.
    of_x = m.reshaped(m.matmul(m.rows(g), weight), x.type.shape)
    return (of_x, of_weight, *of_bias)


def _matmul(m: Maker, node: Node, g: Node) -> Parts | None:
    x, y = node.inputs
    if min(x.type.rank, y.type.rank) < 2 or x.type.rank != y.type.rank:
        return None
    if x.type.shape[:-2] != y.type.shape[:-2]:
        return None
    return m.matmul(g, m.transposed(y)), m.matmul(m.transposed(x), g)


def _addmm(m: Maker, node: Node, g: Node) -> Parts | None:
    added, x, y = node.inputs
    parts = (m.matmul(g, m.transposed(y)), m.matmul(m.transposed(x), g))
    return (m.summed_to(g, added.type.shape), *parts)


_ROWS: Mapping[str, Callable[[Maker, Node, Node], Parts | None]] = {
    "aten.linear.default": _linear,
    "aten.mm.default": _matmul,
    "aten.bmm.default": _matmul,
    "aten.matmul.default": _matmul,
    "aten.addmm.default": _addmm,
    "aten.baddbmm.default": _addmm,
}


def parts_of(m: Maker, node: Node, g: Node) -> Parts | None:
    """What reaches the operands of a call of PyTorch's; None where no row says."""
    a = node.attrs
    plain = a.arguments == tuple(Operand(place) for place in range(len(node.inputs)))
    row = _ROWS.get(a.target)
    if row is None or not plain or a.keywords or a.summed_in_parts:
        return None
    return row(m, node, g)
