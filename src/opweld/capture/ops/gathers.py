"""ATen's reads by the numbers of an index: one row per operator.

An index is in memory: one that the forward computes is stored before. Whole slices are read by an
index whose axes stand where the axis stands, so that it broadcasts with what it reads.
"""

from __future__ import annotations

from functools import cache

import torch

from opweld.ir.attrs import GatherAttrs, IotaAttrs
from opweld.ir.expr import Size
from opweld.ir.graph import Node
from opweld.ir.infer import INDEX_DTYPES
from opweld.ir.ops import Kind, Op
from opweld.ir.types import DType

from ..build import Builder
from ..call import Call, Lower, NotFused


def _index(call: Call, node: Node) -> Node:
    """The index as it is. Raises NotFused where its numbers are no places in memory."""
    if node.type.dtype not in INDEX_DTYPES:
        raise NotFused(f"{call.name} by numbers of {node.type.dtype.value} is the library's")
    held = _behind_views(node)
    if held.op is Op.CONST or (held.op is Op.IOTA and held.type.dtype is not DType.I64):
        raise NotFused(f"{call.name} by a constant is left to the library")
    return node


def _behind_views(node: Node) -> Node:
    while node.kind is Kind.VIEW and len(node.inputs) == 1:
        node = node.inputs[0]
    return node


def _along(call: Call, x: Node, index: Node, attrs: GatherAttrs) -> Node:
    """Element by element: the two broadcast beside the axis."""
    size = x.type.shape[attrs.dim]
    if size == 0 and 0 not in index.type.shape:
        raise NotFused(f"{call.name} of no elements is the library's")
    return call.build.op(Op.GATHER, x, index, attrs=attrs)


def _slices(call: Call, x: Node, index: Node, attrs: GatherAttrs) -> Node:
    """Whole slices of the axis: the index's axes take its place."""
    counted = _counted(call.build, x, index, attrs.dim)
    if counted is not None:
        return counted
    build, axis, shape = call.build, attrs.dim, x.type.shape
    numbers = index.type.shape or (1,)
    spread = build.reshape(x, (*shape[:axis], *(1,) * (len(numbers) - 1), *shape[axis:]))
    beside = (*(1,) * axis, *numbers, *(1,) * (len(shape) - axis - 1))
    dim = axis + len(numbers) - 1
    read = _along(
        call,
        spread,
        build.reshape(index, beside),
        GatherAttrs(dim, attrs.wraps, attrs.ignored, attrs.padding),
    )
    return build.reshape(read, (*shape[:axis], *index.type.shape, *shape[axis + 1 :]))


def _counted(build: Builder, x: Node, index: Node, axis: int) -> Node | None:
    """The slice that an index counts up along the axis, where all of it is known to be there."""
    counts = index.attrs
    if not isinstance(counts, IotaAttrs) or index.op is not Op.IOTA:
        return None
    start, step, length, size = counts.start, counts.step, counts.length, x.type.shape[axis]
    if not isinstance(start, int) or not isinstance(step, int) or start < 0 or step < 1:
        return None
    if not isinstance(length, int) or not isinstance(size, int):
        return None
    last = start + (length - 1) * step
    return build.slice(x, axis, start, length, step) if length and last < size else None


def _embedding(call: Call) -> Node:
    if call.values["scale_grad_by_freq"] or call.values["sparse"]:
        raise NotFused("an embedding with gradients of its own is the library's")
    weight, index = call.node("weight"), _index(call, call.node("indices"))
    padding = call.values["padding_idx"]
    if not isinstance(padding, int):
        raise NotFused("an embedding with a symbolic padding is the library's")
    return _slices(call, weight, index, GatherAttrs(0, padding=None if padding < 0 else padding))


def _index_select(call: Call) -> Node:
    x, index = call.node("self"), _index(call, call.node("index"))
    if x.type.rank == 0:
        raise NotFused("a selection from a number is the library's")
    if index.type.rank == 0:
        index = call.build.reshape(index, (1,))
    return _slices(call, x, index, GatherAttrs(call.dim()))


def _index_tensor(call: Call) -> Node:
    """x[:, index] with one tensor of numbers, which may count from the end."""
    x, indices = call.node("self"), call.values["indices"]
    given = [axis for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or not isinstance(indices[given[0]], Node):
        raise NotFused("a read by several indices is the library's")
    index = indices[given[0]]
    if index.type.dtype not in (DType.I32, DType.I64):
        raise NotFused("a read by a mask is the library's")
    return _slices(call, x, _index(call, index), GatherAttrs(given[0], wraps=True))


def _gather(call: Call) -> Node:
    """Of what is read, as much along the other axes as the index has."""
    if call.values["sparse_grad"]:
        raise NotFused("a gather with sparse gradients is the library's")
    x, index = call.node("self"), _index(call, call.node("index"))
    if x.type.rank == 0 or index.type.rank != x.type.rank:
        raise NotFused("a gather from a number is the library's")
    dim = call.dim()
    for axis, size in enumerate(index.type.shape):
        if axis != dim:
            x = _shortened(call, x, axis, size)
    return _along(call, x, index, GatherAttrs(dim))


def _shortened(call: Call, x: Node, axis: int, length: Size) -> Node:
    size = x.type.shape[axis]
    if size != length and not (isinstance(size, int) and isinstance(length, int)):
        raise NotFused("a gather of symbolic parts is the library's")
    return call.build.slice(x, axis, 0, length)


@cache
def _counts_from_the_end() -> bool:
    """Whether take_along_dim of this torch does, as 2.13 does."""
    try:
        torch.take_along_dim(torch.zeros(1), torch.tensor([-1]), 0)
    except RuntimeError:
        return False
    return True


def _take_along_dim(call: Call) -> Node:
    wraps = _counts_from_the_end()
    x, index = call.node("self"), _index(call, call.node("indices"))
    if call.values["dim"] is None:
        x = call.build.reshape(x, (x.type.num_elems,))
        index = call.build.reshape(index, (index.type.num_elems,))
        return _along(call, x, index, GatherAttrs(0, wraps))
    if x.type.rank == 0 or index.type.rank != x.type.rank:
        raise NotFused("a read by an index of another rank is the library's")
    return _along(call, x, index, GatherAttrs(call.dim(), wraps))


def _one_hot(call: Call) -> Node:
    """1 where the class is the number: it is looked for among those that there are."""
    index, count = _index(call, call.node("self")), call.values["num_classes"]
    if not isinstance(count, int) or count < 1:
        raise NotFused("an unknown number of classes is left to the library")
    build, shape = call.build, index.type.shape
    every = build.arena.iota(IotaAttrs(0, 1, count), DType.I64)
    along = build.reshape(every, (*(1,) * len(shape), count))
    beside = build.reshape(index, (*shape, 1))
    number = _along(call, along, beside, GatherAttrs(len(shape)))
    return build.cast(call.make(Op.EQ, number, along), DType.I64)


GATHERS: dict[str, Lower] = {
    "embedding": _embedding,
    "index_select": _index_select,
    "index": _index_tensor,
    "gather": _gather,
    "take_along_dim": _take_along_dim,
    "one_hot": _one_hot,
}
