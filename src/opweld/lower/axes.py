"""Which axes of the results the axes of an operand lie along: all that a skeleton has to know."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.expr import Monomial, Size, symbol, terms_of, with_gathers
from ..ir.graph import Node
from ..ir.kernels.kernel import Buffer, Kernel, Load, Store
from ..ir.kernels.operand import Cut, FunctorOperand
from ..ir.kernels.reduction import Folding
from ..ir.plan import Group
from .names import stride_name


def operands_of(group: Group, strided: Kernel) -> tuple[FunctorOperand, ...] | None:
    """What a pointwise kernel reads, buffer by buffer: all of it, or parts that begin at known
    places. None where some is read in another way, something that is none is, or a part of a list
    of tensors.
    """
    loads = [each for each in strided.definitions if isinstance(each, Load) and not each.guard]
    if len(loads) < len(strided.definitions):
        return None
    found: list[FunctorOperand] = []
    for place, buffer in enumerate(strided.buffers):
        own = [each for each in loads if each.buffer == buffer.name]
        read = [_operand(group, place, buffer, each) for each in own]
        operands = [each for each in read if each is not None]
        if len(operands) < len(read) or not read and not buffer.written:
            return None
        if buffer.listed is not None and (len(read) > 1 or operands[0].cuts):
            return None
        found += operands
    return tuple(found)


def axes_of_epilogue(group: Group, strided: Kernel) -> tuple[tuple[int, ...], ...] | None:
    """For each operand that is read beside an element of a product the axes of the results that its
    own lie along, one apiece; None where some are read in another way or in part, or something that
    is none.
    """
    loads = {d.buffer: d for d in strided.definitions if isinstance(d, Load) and not d.guard}
    read = [(i, buffer) for i, buffer in enumerate(strided.buffers) if not buffer.written]
    if len(read) + 1 != len(strided.definitions) or not {b.name for _, b in read} <= set(loads):
        return None
    operands = [_operand(group, i, buffer, loads[buffer.name]) for i, buffer in read]
    found = [each.along for each in operands if each is not None and not each.cuts]
    return tuple(found) if len(found) == len(read) else None


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
        if size != 1 and size != space[axes[0]]:
            return None
        found.append(axes[0] if axes else None)
    moving = sum(1 for size in node.type.shape if size != 1)
    return found if moving == len(terms) else None


def _operand(group: Group, place: int, buffer: Buffer, load: Load) -> FunctorOperand | None:
    """What a load reads of a buffer, by the address of an element; an axis of size 1 lies along any
    of the results.
    """
    node, shape = group.inputs[buffer.source], group.outputs[0].type.shape
    along: list[int] = []
    cuts: list[Cut] = []
    taken: set[int] = set()
    terms, rank = dict(terms_of(load.address)), len(shape)
    for own, size in enumerate(node.type.shape):
        step = symbol(stride_name(buffer.name, own))
        places = [_monomial(symbol(f"i{axis}") * step) for axis in range(rank)]
        axes = [axis for axis in range(rank) if size != 1 and terms.get(places[axis]) == 1]
        begin = terms.pop(_monomial(step), 0) if size != 1 else 0
        if len(axes) > 1 or taken & set(axes):
            return None
        taken.update(axes)
        for axis in axes:
            del terms[places[axis]]
        along.append(axes[0] if axes else max(rank - node.type.rank + own, 0))
        length = shape[axes[0]] if axes else 1
        if begin == 0 and size == length:
            continue
        cuts.append(Cut(own, begin, length))
    return None if terms else FunctorOperand(load.name, place, tuple(along), tuple(cuts))


def _monomial(term: Size) -> Monomial:
    ((monomial, _),) = terms_of(term)
    return monomial
