"""Products that are rounded before anything is added to them.

Both compilers contract `a * b - c` to one rounding, which is mostly the better number. Not where c
is the largest of such products, or their mean: these are of rounded ones, so that a product that
should leave nothing would leave its own rounding. Of 1e12 that is thousands: softmax has NaN of
exp, and a norm makes ones of the zeros of a constant row. Nor where c is a product, too: of equal
ones nothing is left, as of y log(y) - y log(x) where x is y.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..ir.graph import Node
from ..ir.ops import Kind, Op

_FOLDS = frozenset((Op.AMAX, Op.AMIN, Op.CUMMAX, Op.CUMMIN, Op.SUM, Op.MEAN))
_KEEPING = frozenset((Op.NEG, Op.CAST))
_PRODUCTS = frozenset((Op.MUL, Op.DIV))


def rounded_products(nodes: Iterable[Node]) -> frozenset[int]:
    """The serials of products and quotients from which their own extreme or mean is subtracted, or
    that are subtracted from it; and of products that are subtracted from each other.
    """
    differences = [node.inputs for node in nodes if node.op is Op.SUB]
    pairs = [(_core(one), other) for a, b in differences for one, other in ((a, b), (b, a))]
    return frozenset(
        value.serial
        for value, other in pairs
        if value.op in _PRODUCTS
        and (
            any(_core(each) is value for each in _folded(other))
            or (_is_of_two(value) and _is_of_two(_core(other)))
        )
    )


def _is_of_two(node: Node) -> bool:
    """Whether it is a product whose factors both vary."""
    return node.op in (Op.MUL, Op.XLOGY) and all(each.op is not Op.CONST for each in node.inputs)


def _core(node: Node) -> Node:
    """What the elements of a node are, but for their sign, type and place."""
    while node.kind is Kind.VIEW or node.op in _KEEPING:
        node = node.inputs[0]
    return node


def _folded(node: Node) -> Iterator[Node]:
    """What is folded for an extreme or a mean, as which the node may be chosen."""
    node = _core(node)
    if node.op in _FOLDS:
        yield node.inputs[0]
    elif node.op is Op.WHERE:
        yield from (found for each in node.inputs[1:] for found in _folded(each))
    elif node.op in _PRODUCTS and node.inputs[1].op is Op.CONST:
        yield from _folded(node.inputs[0])
