"""How values are named in the description of a rewrite."""

from __future__ import annotations

from ..ir.graph import Node
from ..ir.ops import Op

_DEPTH = 2


def name_of(node: Node, depth: int = _DEPTH) -> str:
    """The user's name of an input or a weight; of another value, what it is computed of."""
    if node.op in (Op.INPUT, Op.WEIGHT):
        return str(node.attrs.access).removeprefix("self.")
    if node.op is Op.CONST:
        return str(node.attrs)
    op = node.attrs.target.split(".")[1] if node.op is Op.CALL else node.op.value
    if depth == 0 or not node.inputs:
        return f"{op}(...)"
    return f"{op}({', '.join(name_of(each, depth - 1) for each in node.inputs)})"
