"""What is read through overlapping windows, or by an index, is computed anew for each reader: is
that dearer than memory?

A pool of 3 by 3 elements, one apart, reads each element nine times. Computed where it is read, a
ReLU before it costs eight operations more an element, and saves a write and a read; a GELU costs
more than two hundred.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import Node
from ..ir.ops import Kind, Op
from ..ir.plan import number_at
from ..ir.views import is_free_view
from .cost import OP_FLOPS
from .uses import Uses

REPEATING = frozenset((Op.WINDOW, Op.GATHER))


def is_worth_repeating(
    uses: Uses, upper: Sequence[Node], nodes: Sequence[Node], flops_per_byte: float
) -> bool:
    """Whether what `upper` computes may be computed where its readers among `nodes`, which hold it,
    need it: the operations that this adds take no longer than to write its results and to read
    them again, on a device that does so many operations while a byte moves.
    """
    repeats = _repeats(nodes)
    added = sum(
        max(repeats.get(node.serial, 1.0) - 1.0, 0.0)
        * number_at(node.type.num_elems)
        * OP_FLOPS.get(node.op, 1)
        for node in upper
        if node.kind is Kind.POINTWISE
    )
    if added == 0:
        return True
    stored_bytes = sum(number_at(node.type.size_bytes) for node in uses.results(upper))
    return added <= 2 * stored_bytes * flops_per_byte


def _repeats(nodes: Sequence[Node]) -> dict[int, float]:
    """How often each value is computed for each of its elements, for readers through windows."""
    found: dict[int, float] = {}
    for node in reversed(nodes):
        own = found.get(node.serial, 1.0)
        for operand in node.inputs:
            times = own * _gathers_each(node) if node.op is Op.GATHER else own
            while is_free_view(operand):
                times *= _overlap(operand) if operand.op is Op.WINDOW else 1.0
                operand = operand.inputs[0]
            found[operand.serial] = max(times, found.get(operand.serial, 0.0))
    return found


def _gathers_each(pick: Node) -> float:
    """How often each element of what a GATHER reads is read."""
    elems = number_at(pick.inputs[0].type.num_elems)
    return number_at(pick.type.num_elems) / max(elems, 1)


def _overlap(window: Node) -> float:
    """The elements of all windows by the elements that there are."""
    elems = number_at(window.inputs[0].type.num_elems)
    return number_at(window.type.num_elems) / max(elems, 1)
