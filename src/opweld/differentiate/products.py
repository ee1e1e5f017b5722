"""Gradients of matrix products: two products each, and a sum for what was added."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..ir.attrs import CallAttrs, Operand
from ..ir.graph import Node
from ..ir.types import ShapeMismatch, TensorType, broadcast
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
    if y.type.rank == 1:
        return _of_vector(m, x, y, g)
    if x.type.rank == 1:
        of_y, of_x = _of_vector(m, m.transposed(y), x, g)
        return of_x, m.transposed(of_y)
    if y.type.rank == 2 and x.type.rank > 2:
        of_x = m.matmul(m.rows(g), m.transposed(y))
        of_y = m.matmul(m.transposed(m.rows(x)), m.rows(g))
        return m.reshaped(of_x, x.type.shape), of_y
    try:
        return _batched(m, g, m.transposed(y)), _batched(m, m.transposed(x), g)
    except ShapeMismatch:  # of a kernel for any sizes, which has a name for each
        return None


def _of_vector(m: Maker, x: Node, y: Node, g: Node) -> tuple[Node, Node]:
    """Of the sums of the rows of `x`, weighed with `y`."""
    each = m.reshaped(g, (*g.type.shape, 1))
    weighed = m.mul(each, x)
    return m.mul(each, y), m.summed_to(weighed, y.type.shape)


def _batched(m: Maker, x: Node, y: Node) -> Node:
    """The product of two stacks of matrices, which are broadcast to each other."""
    batch = broadcast((x.type.shape[:-2], y.type.shape[:-2]))
    return m.matmul(*(m.expanded(each, (*batch, *each.type.shape[-2:])) for each in (x, y)))


def _addmm(m: Maker, node: Node, g: Node) -> Parts | None:
    added, x, y = node.inputs
    parts = (m.matmul(g, m.transposed(y)), m.matmul(m.transposed(x), g))
    return (m.summed_to(g, added.type.shape), *parts)


_ROWS: Mapping[str, Callable[[Maker, Node, Node], Parts | None]] = {
    "aten.linear.default": _linear,
    "aten.mm.default": _matmul,
    "aten.mv.default": _matmul,
    "aten.dot.default": _matmul,
    "aten.bmm.default": _matmul,
    "aten.matmul.default": _matmul,
    "aten.addmm.default": _addmm,
    "aten.baddbmm.default": _addmm,
}


def parts_of(m: Maker, node: Node, g: Node) -> Parts | None:
    """What reaches the operands of a call of PyTorch's; None where no row says."""
    a = node.attrs
    if a.keywords or a.summed_in_parts:
        return None
    if a.target == "aten.einsum.default":
        return _einsum(m, node, g)
    plain = a.arguments == tuple(Operand(place) for place in range(len(node.inputs)))
    row = _ROWS.get(a.target)
    return row(m, node, g) if row is not None and plain else None


def _einsum(m: Maker, node: Node, g: Node) -> Parts | None:
    """Each is an einsum of the gradient and the other operands."""
    equation, given, *_ = node.attrs.arguments
    read, arrow, result = equation.replace(" ", "").partition("->")
    terms, operands = read.split(","), [node.inputs[each.index] for each in given]
    if not arrow or "." in equation or any(len({*term}) != len(term) for term in terms):
        return None
    found: dict[int, Node] = {}
    for place, x in enumerate(operands):
        others = [*terms[:place], *terms[place + 1 :]]
        if not {*terms[place]} <= {*"".join(others), *result}:
            return None  # a sum of its own alone
        nodes = (g, *operands[:place], *operands[place + 1 :])
        text = f"{','.join([result, *others])}->{terms[place]}"
        places = tuple(Operand(at) for at in range(len(nodes)))
        kind = TensorType(g.type.dtype, x.type.shape)
        attrs = CallAttrs(node.attrs.target, (text, places), (), (kind,), "a gradient")
        part = m.arena.call(nodes, attrs)
        known = found.get(given[place].index)
        found[given[place].index] = part if known is None else m.add(known, part)
    return tuple(found[at] for at in range(len(node.inputs)))
