"""What the caller gets: fresh tensors where the original gave such."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node
from ..ir.ops import Op

_ALIASING = (Op.PERMUTE, Op.EXPAND, Op.RESHAPE, Op.SLICE, Op.WINDOW)


def may_alias(node: Node) -> bool:
    """Whether the value shares memory with an input or a weight, so that writes go through."""
    return _root(node).op in (Op.INPUT, Op.WEIGHT)


def _root(node: Node) -> Node:
    while node.op in _ALIASING:
        node = node.inputs[0]
    return node


def keep_fresh(before: Graph, after: Graph) -> Graph:
    """`after`; where it would return an input for what was computed (`x * 1.0`), or one tensor for
    two (`x.abs(), x.abs().abs()`), that as before.
    """
    owners: dict[int, int] = {}
    outputs = []
    for old, new in zip(before.outputs, after.outputs, strict=True):
        shared = owners.setdefault(_root(new).serial, _root(old).serial) != _root(old).serial
        outputs.append(old if shared or (may_alias(new) and not may_alias(old)) else new)
    if tuple(outputs) == after.outputs:
        return after
    origins = {**dict(before.origins), **dict(after.origins)}
    kept = replace(after, outputs=tuple(outputs), origins=())
    serials = sorted({node.serial for node in kept.nodes()} & origins.keys())
    return replace(kept, origins=tuple((serial, origins[serial]) for serial in serials))
