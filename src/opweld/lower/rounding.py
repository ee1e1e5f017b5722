"""Products that are rounded before anything is added to them.

Both compilers contract `a * b - c` to one rounding, which is mostly the better number. Not where c
is the largest of such products: that was rounded, so that the largest would miss itself by its
rounding, and e to the power of that is 0 or infinite once it is a few dozens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..ir.graph import Node
from ..ir.ops import Kind, Op

_EXTREMES = frozenset((Op.AMAX, Op.AMIN, Op.CUMMAX, Op.CUMMIN))
_KEEPING = frozenset((Op.NEG, Op.CAST))


def rounded_products(nodes: Iterable[Node]) -> frozenset[int]:
    """The serials of products and quotients from which their own extreme is subtracted, or that are
    subtracted from it.
    """
    differences = (node.inputs for node in nodes if node.op is Op.SUB)
    pairs = (pair for a, b in differences for pair in ((a, b), (b, a)))
    return frozenset(
        value.serial
        for value, extreme in ((_core(one), other) for one, other in pairs)
        if value.op in (Op.MUL, Op.DIV) and any(_core(e) is value for e in _extremes(extreme))
    )


def _core(node: Node) -> Node:
    """What the elements of a node are, but for their sign, type and place."""
    while node.kind is Kind.VIEW or node.op in _KEEPING:
        node = node.inputs[0]
    return node


def _extremes(node: Node) -> Iterator[Node]:
    """What the extremes that a node may be are taken of."""
    node = _core(node)
    if node.op in _EXTREMES:
        yield node.inputs[0]
    elif node.op is Op.WHERE:
        yield from (found for each in node.inputs[1:] for found in _extremes(each))
