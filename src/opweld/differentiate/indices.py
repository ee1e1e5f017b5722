"""Gradients of reads by an index: PyTorch's own sums over the reads of each element.

Whole slices are an embedding's gradient, which adds the reads of an element in a fixed order.
Single elements are a gather's: as in eager, its order is fixed where
`torch.use_deterministic_algorithms` asks for that. Where one element of each row is read nothing is
summed.
"""

from __future__ import annotations

from ..ir.attrs import CallAttrs, GatherAttrs, IotaAttrs, Operand
from ..ir.expr import product
from ..ir.graph import Node
from ..ir.ops import Op
from ..ir.types import DType, TensorType
from .maker import Maker

Parts = tuple[Node | None, ...]
_REASON = "a sum over the reads of each element is the library's"


def gather(m: Maker, node: Node, g: Node) -> Parts | None:
    """What reaches what is read; None where no row says."""
    (x, index), a = node.inputs, node.attrs
    one_each = (*x.type.shape[: a.dim], 1, *x.type.shape[a.dim + 1 :])
    if node.type.shape == one_each and a.padding is None:
        return _of_one_each(m, node, g), None
    if not g.type.dtype.is_float or index.type.dtype not in (DType.I32, DType.I64):
        return None
    places = _from_the_start(m, x, index, a)
    if _reads_slices(node):
        return _of_slices(m, node, places, g), None
    if a.padding is not None or one_each[: a.dim] != node.type.shape[: a.dim]:
        return None
    if one_each[a.dim + 1 :] != node.type.shape[a.dim + 1 :]:
        return None
    return _of_elements(m, node, places, g), None


def _of_one_each(m: Maker, node: Node, g: Node) -> Node:
    """All others get 0."""
    (x, index), a = node.inputs, node.attrs
    size = x.type.shape[a.dim]
    places = m.arena.iota(IotaAttrs(0, 1, size), index.type.dtype)
    along = tuple(size if each == a.dim else 1 for each in range(x.type.rank))
    return m.where(m(Op.EQ, m.reshaped(places, along), _wrapped(m, x, index, a)), g, 0.0)


def _wrapped(m: Maker, x: Node, index: Node, a: GatherAttrs) -> Node:
    if not a.wraps:
        return index
    length = m.arena.const(x.type.shape[a.dim], index.type.dtype)
    from_end = m(Op.LT, index, m.arena.const(0, index.type.dtype))
    return m.where(from_end, m.add(index, length), index)


def _from_the_start(m: Maker, x: Node, index: Node, a: GatherAttrs) -> Node:
    """The index without numbers that count from the end, and without those that are ignored: what
    is read for these reaches nobody.
    """
    if a.ignored is not None:
        ignored = m.arena.const(a.ignored, index.type.dtype)
        zero = m.arena.const(0, index.type.dtype)
        index = m.arena.make(Op.WHERE, m(Op.EQ, index, ignored), zero, index)
    return _wrapped(m, x, index, a)


def _reads_slices(node: Node) -> bool:
    """Whether an index of its own axes stands where one axis of what is read does."""
    (x, index), dim = node.inputs, node.attrs.dim
    numbered = [axis for axis, size in enumerate(index.type.shape) if size != 1]
    others = [axis for axis in numbered if axis != dim]
    first = min((*numbered, dim))
    inside = others == [] or max(others) < dim
    return inside and all(x.type.shape[axis] == 1 for axis in range(first, dim))


def _of_slices(m: Maker, node: Node, places: Node, g: Node) -> Node:
    (x, index), a = node.inputs, node.attrs
    shape, numbers = x.type.shape, index.type.shape
    numbered = [axis for axis, size in enumerate(numbers) if size != 1]
    first = min((*numbered, a.dim))
    before, after = product(shape[:first]), product(shape[a.dim + 1 :])
    count = product(numbers[first : a.dim + 1])
    rows = m.reshaped(g, (before, count, after))
    rows = rows if before == 1 else m.permuted(rows, (1, 0, 2))
    rows = m.reshaped(rows, (count, before * after))
    size = shape[a.dim]
    padding = -1 if a.padding is None else a.padding
    kind = TensorType(g.type.dtype, (size, before * after))
    given = (Operand(0), Operand(1), size, padding, False)
    attrs = CallAttrs("aten.embedding_dense_backward.default", given, (), (kind,), _REASON)
    made = m.arena.call((rows, m.reshaped(places, (count,))), attrs)
    if before != 1:
        made = m.permuted(m.reshaped(made, (size, before, after)), (1, 0, 2))
    return m.reshaped(made, shape)


def _of_elements(m: Maker, node: Node, places: Node, g: Node) -> Node:
    """Where all along the other axes of what is read is read."""
    x, a = node.inputs[0], node.attrs
    if places.type.dtype is not DType.I64:
        places = m.cast(places, DType.I64)
    places = m.expanded(places, node.type.shape)
    given = (Operand(0), Operand(1), a.dim, Operand(2), False)
    attrs = CallAttrs("aten.gather_backward.default", given, (), (x.type,), _REASON)
    return m.arena.call((g, x, places), attrs)
