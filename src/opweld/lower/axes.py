"""Which axes of the results the axes of an operand lie along: all that a skeleton has to know."""

from __future__ import annotations

from ..ir.expr import Size, symbol, terms_of
from ..ir.graph import Node
from ..ir.kernel import Buffer, Kernel, Load
from ..ir.plan import Group
from .names import stride_name


def axes_of(group: Group, strided: Kernel) -> tuple[tuple[int, ...], ...] | None:
    """For each operand the axes of the results that its own lie along, one apiece; None where some
    operand is read in another way, or something that is none.
    """
    loads = {d.buffer: d for d in strided.definitions if isinstance(d, Load) and not d.guard}
    if len(strided.definitions) != len(loads) or len(loads) != len(group.inputs):
        return None
    found = []
    for buffer, node in zip(strided.buffers, group.inputs, strict=False):
        along = _along(buffer, node, loads[buffer.name].address, group.outputs[0].type.rank)
        if along is None:
            return None
        found.append(along)
    return tuple(found)


def _along(buffer: Buffer, node: Node, address: Size, rank: int) -> tuple[int, ...] | None:
    """The one of `rank` axes along which each axis of an operand lies, by an element's address; one
    of size 1 lies along any.
    """
    found: list[int] = []
    terms = terms_of(address)
    for own, size in enumerate(node.type.shape):
        step = symbol(stride_name(buffer.name, own))
        axes = [a for a in range(rank) if terms_of(symbol(f"i{a}") * step)[0] in terms]
        if size != 1 and (len(axes) != 1 or axes[0] in found):
            return None
        found.append(axes[0] if axes else max(rank - node.type.rank + own, 0))
    moving = sum(1 for size in node.type.shape if size != 1)
    return tuple(found) if moving == len(terms) else None
