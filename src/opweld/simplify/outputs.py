"""What the caller gets: fresh tensors where the original gave such."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Arena, Graph, Node
from ..ir.ops import Kind, Op
from ..ir.types import DType

_ALIASING = (Op.PERMUTE, Op.EXPAND, Op.RESHAPE, Op.SLICE, Op.WINDOW)


def may_alias(node: Node) -> bool:
    """Whether the value shares memory with an input or a weight, so that writes go through."""
    return _root(node).op in (Op.INPUT, Op.WEIGHT)


def _root(node: Node) -> Node:
    while node.op in _ALIASING:
        node = node.inputs[0]
    return node


def keep_fresh(before: Graph, after: Graph, arena: Arena) -> Graph:
    """`after`; where it would return an input for what was computed (`x * 1.0`), or one tensor for
    two (`x.abs(), x.abs().abs()`, or two parts of `torch.cat((y, y))`), that as before. A
    comparison is made again in its new form: the old one may be what a compiler has wrong (see
    `comparisons`).
    """
    origins = {**dict(before.origins), **dict(after.origins)}
    owners: dict[int, list[tuple[Node, Node]]] = {}
    outputs = []
    for old, new in zip(before.outputs, after.outputs, strict=True):
        others = owners.setdefault(_root(new).serial, [])
        shared = any(_now_share(old, new, *other) for other in others)
        others.append((old, new))
        if shared and _compares(new):
            again = arena.again(new.op, *new.inputs, attrs=new.attrs)
            if old.serial in origins:
                origins[again.serial] = origins[old.serial]
            outputs.append(again)
        else:
            outputs.append(old if shared or (may_alias(new) and not may_alias(old)) else new)
    if tuple(outputs) == after.outputs:
        return after
    kept = replace(after, outputs=tuple(outputs), origins=())
    serials = sorted({node.serial for node in kept.nodes()} & origins.keys())
    return replace(kept, origins=tuple((serial, origins[serial]) for serial in serials))


def _compares(node: Node) -> bool:
    return node.kind is Kind.POINTWISE and node.type.dtype is DType.BOOL


def _now_share(old: Node, new: Node, old_other: Node, new_other: Node) -> bool:
    """Whether two that are of one tensor now were not before."""
    if _root(old) is not _root(old_other):
        return True
    return _are_apart(old, old_other) and not _are_apart(new, new_other)


def _are_apart(left: Node, right: Node) -> bool:
    """Whether both are known to be of different parts of a tensor, cut from it along one axis."""
    one, other = _first_cut(left), _first_cut(right)
    if one is None or other is None or one[0] != other[0]:
        return False
    return one[2] <= other[1] or other[2] <= one[1]


def _first_cut(node: Node) -> tuple[int, int, int] | None:
    """The axis, the first place and the end of the slice that is the first view of the tensor, if
    it is one with places that are known.
    """
    cut = None
    while node.op in _ALIASING:
        cut = node.attrs if node.op is Op.SLICE else None
        node = node.inputs[0]
    if cut is None or not isinstance(cut.start, int) or not isinstance(cut.length, int):
        return None
    return cut.dim, cut.start, cut.start + cut.length * cut.step
