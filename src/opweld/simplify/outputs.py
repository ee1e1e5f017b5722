"""What the caller gets: a fresh tensor where the original gave one."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node
from ..ir.ops import Op

_ALIASING = (Op.PERMUTE, Op.EXPAND, Op.RESHAPE, Op.SLICE)


def may_alias(node: Node) -> bool:
    """Whether the value shares memory with an input or a weight, so that writes go through."""
    while node.op in _ALIASING:
        node = node.inputs[0]
    return node.op in (Op.INPUT, Op.WEIGHT)


def keep_fresh(before: Graph, after: Graph) -> Graph:
    """`after`; where it would return an input for what was computed (`x * 1.0`), that as before."""
    outputs = tuple(
        old if may_alias(new) and not may_alias(old) else new
        for old, new in zip(before.outputs, after.outputs, strict=True)
    )
    if outputs == after.outputs:
        return after
    origins = {**dict(before.origins), **dict(after.origins)}
    kept = replace(after, outputs=outputs, origins=())
    serials = sorted({node.serial for node in kept.nodes()} & origins.keys())
    return replace(kept, origins=tuple((serial, origins[serial]) for serial in serials))
