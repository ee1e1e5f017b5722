"""Which axes of the results the axes of an operand lie along: all that a skeleton has to know."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.expr import Size, symbol, terms_of, with_gathers
from ..ir.graph import Node
from ..ir.kernels.kernel import Buffer, Kernel, Load, Store
from ..ir.kernels.reduction import Folding
from ..ir.plan import Group
from .names import stride_name


def axes_of(group: Group, strided: Kernel) -> tuple[tuple[int, ...], ...] | None:
    """For each operand the axes of the results that its own lie along, one apiece; None where some
    operand is read in another way or in part, or something that is none.
    """
    operands = sum(not buffer.written for buffer in strided.buffers)
    return _axes_of_loads(group, strided) if operands == len(strided.definitions) else None


def axes_of_epilogue(group: Group, strided: Kernel) -> tuple[tuple[int, ...], ...] | None:
    """The same for the operands that are read beside an element of a product."""
    operands = sum(not buffer.written for buffer in strided.buffers)
    return _axes_of_loads(group, strided) if operands + 1 == len(strided.definitions) else None


def _axes_of_loads(group: Group, strided: Kernel) -> tuple[tuple[int, ...], ...] | None:
    loads = {d.buffer: d for d in strided.definitions if isinstance(d, Load) and not d.guard}
    found = []
    for buffer in strided.buffers:
        if buffer.written:
            continue
        if buffer.name not in loads:
            return None
        node, address = group.inputs[buffer.source], loads[buffer.name].address
        along = _along(buffer, node, address, group.outputs[0].type.shape)
        if along is None:
            return None
        found.append(along)
    return tuple(found)


def axes_of_rows(group: Group, strided: Folding) -> tuple[tuple[int, ...], ...] | None:
    """For each operand and result of a reduction the axes of its space that its own lie along, one
    apiece, and for one of size 1 the number of these axes; None where some are read in another way,
    or in part: a skeleton goes by the sizes of the tensors that it is given. What an index picks of
    a row lies along it, too.
    """
    assert group.rows, "a reduction has rows"
    variables = {loop.var: int(loop.var[1:]) for loop in (*strided.kept, *strided.reduced)}
    space = group.rows.space
    found = []
    for buffer in strided.buffers:
        node = (group.outputs if buffer.written else group.inputs)[buffer.source]
        places = {
            _anywhere(place.address, strided)
            for kernel in strided.kernels
            for place in (*kernel.definitions, *kernel.stores)
            if isinstance(place, Load | Store) and place.buffer == buffer.name
        }
        whole = len(places) == 1
        along = _of_space(buffer, node, places.pop(), variables, space) if whole else None
        if along is None:
            return None
        found.append(tuple(len(space) if axis is None else axis for axis in along))
    told = {axis for along in found for axis in along}
    wide = {axis for axis, size in enumerate(space) if size != 1}
    return tuple(found) if wide <= told else None


def _anywhere(address: Size, strided: Folding) -> Size:
    """An address where a place that is picked is any of the row."""
    (loop, *more) = strided.reduced
    return address if more else with_gathers(address, lambda _: symbol(loop.var))


def _of_space(
    buffer: Buffer,
    node: Node,
    address: Size,
    variables: Mapping[str, int],
    space: tuple[Size, ...],
) -> list[int | None] | None:
    """The axis of the space along which each axis of an operand lies, None for one of size 1."""
    found: list[int | None] = []
    terms = terms_of(address)
    for own, size in enumerate(node.type.shape):
        step = symbol(stride_name(buffer.name, own))
        axes = [a for var, a in variables.items() if terms_of(symbol(var) * step)[0] in terms]
        if size != 1 and (len(axes) != 1 or axes[0] in found):
            return None
        if size != 1 and size != space[axes[0]] and own != buffer.listed:
            return None
        found.append(axes[0] if axes else None)
    moving = sum(1 for size in node.type.shape if size != 1)
    return found if moving == len(terms) else None


def _along(
    buffer: Buffer, node: Node, address: Size, shape: tuple[Size, ...]
) -> tuple[int, ...] | None:
    """The axis of the results, which have this shape, along which each axis of an operand lies, by
    an element's address; one of size 1 lies along any.
    """
    found: list[int] = []
    taken: set[int] = set()
    terms, rank = terms_of(address), len(shape)
    for own, size in enumerate(node.type.shape):
        step = symbol(stride_name(buffer.name, own))
        axes = [a for a in range(rank) if terms_of(symbol(f"i{a}") * step)[0] in terms]
        if size != 1 and (len(axes) != 1 or axes[0] in taken):
            return None
        if size != 1 and size != shape[axes[0]] and own != buffer.listed:
            return None
        taken.update(axes)
        found.append(axes[0] if axes else max(rank - node.type.rank + own, 0))
    moving = sum(1 for size in node.type.shape if size != 1)
    return tuple(found) if moving == len(terms) else None
