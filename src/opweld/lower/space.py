"""The iteration space of a kernel: its loops merged, its accesses classified, its integer
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from ..ir.expr import (
    Bounds,
    Size,
    coefficient,
    divides,
    each_term,
    substitute,
    symbol,
    symbols_of,
    with_gathers,
    without_symbols,
)
from ..ir.kernels.kernel import (
    Access,
    Buffer,
    Condition,
    Definition,
    Extent,
    Gather,
    Index,
    Kernel,
    Load,
    Loop,
    Multiplied,
    Own,
    RowScalar,
    Store,
    condition_of,
    expressions_of,
)
from .names import stride_name

NO_VALUES: Mapping[str, Size] = MappingProxyType({})


def merge_loops(kernel: Kernel) -> Kernel:
    """The kernel with neighbouring loops made one wherever every address allows it."""
    (merged,), loops = merge_together((kernel,), kernel.loops, (), "i")
    extents = extents_of(loops, merged.definitions, merged.stores, merged.buffers)
    return replace(merged, loops=loops, extents=extents)


def merge_together(
    kernels: tuple[Kernel, ...], loops: tuple[Loop, ...], others: tuple[Loop, ...], prefix: str
) -> tuple[tuple[Kernel, ...], tuple[Loop, ...]]:
    """Neighbours among `loops` made one wherever every address of every kernel allows it.

    The loops are numbered anew, outermost `<prefix>0`; a single one is `<prefix>`. `others` are
    loops that the addresses know too. Gives the kernels, in which only addresses are changed, and
    the loops.
    """
    left = list(loops)
    position = len(left) - 2
    while position >= 0:
        outer, inner = left[position], left[position + 1]
        exprs = [expr for kernel in kernels for expr in _expressions(kernel)]
        if all(_merges(expr, outer, inner) for expr in exprs):
            left[position : position + 2] = [Loop(inner.var, outer.extent * inner.extent)]
            # The inner variable takes over both loops: the outer one is 0 from now on.
            bounds = _bounds((*left, *others))
            kernels = tuple(_mapped(kernel, {outer.var: 0}, bounds) for kernel in kernels)
        position -= 1
    new = {loop.var: f"{prefix}{k}" if len(left) > 1 else prefix for k, loop in enumerate(left)}
    renamed = tuple(Loop(new[loop.var], loop.extent) for loop in left)
    values: dict[str, Size] = {old: symbol(name) for old, name in new.items()}
    bounds = _bounds((*renamed, *others))
    return tuple(_mapped(kernel, values, bounds) for kernel in kernels), renamed


def _merges(expr: Size, outer: Loop, inner: Loop) -> bool:
    """What an index tells is as good as a constant where its own address merges: that is among the
    expressions, too.
    """
    expr = with_gathers(expr, lambda place: symbol(place.name))
    slow, fast = coefficient(expr, outer.var), coefficient(expr, inner.var)
    return slow is not None and fast is not None and slow == fast * inner.extent


def _bounds(loops: Iterable[Loop]) -> dict[str, Size]:
    return {loop.var: loop.extent for loop in loops}


def _mapped(kernel: Kernel, values: dict[str, Size], bounds: Bounds) -> Kernel:
    """The kernel with loop variables replaced; `bounds` are those of the variables afterwards."""

    def mapped(expr: Size) -> Size:
        return substitute(expr, values, bounds)

    return replace(
        kernel,
        definitions=tuple(_map_definition(d, mapped) for d in kernel.definitions),
        stores=tuple(replace(s, address=mapped(s.address)) for s in kernel.stores),
    )


def _map_definition(definition: Definition, mapped: Callable[[Size], Size]) -> Definition:
    if isinstance(definition, Load):
        guard = _map_condition(definition.guard, mapped)
        return replace(definition, address=mapped(definition.address), guard=guard)
    if isinstance(definition, Index):
        return replace(definition, expr=mapped(definition.expr))
    if isinstance(definition, Gather):
        coords, guard = map(mapped, definition.coords), _map_condition(definition.guard, mapped)
        return replace(definition, coords=tuple(coords), guard=guard)
    if isinstance(definition, Multiplied | RowScalar):
        return definition
    return replace(definition, condition=_map_condition(definition.condition, mapped))


def _map_condition(condition: Condition, mapped: Callable[[Size], Size]) -> Condition:
    return tuple(replace(between, expr=mapped(between.expr)) for between in condition)


def _expressions(kernel: Kernel) -> list[Size]:
    found: list[Size] = [store.address for store in kernel.stores]
    for definition in kernel.definitions:
        found.extend(expressions_of(definition))
    return found


Divides = Callable[[Size], bool]
"""Whether the elements of a packet divide a size."""


def with_access(kernel: Kernel, values: Mapping[str, Size] = NO_VALUES) -> Kernel:
    """The kernel with each definition's access chosen for its lanes, neighbours in the innermost
    loop, where named sizes have these values; for others see `multiples`.
    """
    lane = kernel.loops[-1]

    def divided(size: Size) -> bool:
        return divides(kernel.lanes, substitute(size, values))

    whole = len(kernel.loops) == 1 or divided(lane.extent)
    place = kernel.stores[0].address
    kernel = _with_accesses(kernel, lambda d: _access(d, kernel, lane, whole, place, divided))
    return replace(kernel, multiples=_multiples(kernel))


def _multiples(kernel: Kernel) -> tuple[Size, ...]:
    """The sizes that must be whole numbers of packets: the innermost loop where lanes read
    something together, and what a vector begins behind.
    """
    loops = {loop.var for loop in kernel.loops}
    needed: list[Size] = []
    for definition in kernel.definitions:
        if not isinstance(definition, Own) or definition.access in (Access.FLAT, Access.LANE):
            continue
        if not any(symbols_of(expr) & loops for expr in expressions_of(definition)):
            continue
        needed += [kernel.loops[-1].extent] if len(kernel.loops) > 1 else []
        if isinstance(definition, Load) and definition.access is Access.VECTOR:
            start = _start_of(definition, kernel, kernel.loops[-1])
            needed += [without_symbols(term, loops) for term in each_term(start)]
    return tuple(dict.fromkeys(size for size in needed if not divides(kernel.lanes, size)))


def accessed(kernel: Kernel, lane: Loop, divided: Divides) -> Kernel:
    """The kernel with each definition's access chosen for lanes that are neighbours in `lane`."""
    whole = divided(lane.extent)
    return _with_accesses(kernel, lambda d: _access(d, kernel, lane, whole, None, divided))


def _with_accesses(kernel: Kernel, access: Callable[[Own], Access]) -> Kernel:
    definitions = tuple(
        replace(d, access=access(d)) if isinstance(d, Own) else d for d in kernel.definitions
    )
    return replace(kernel, definitions=definitions)


def _access(
    definition: Own,
    kernel: Kernel,
    lane: Loop,
    whole: bool,
    place: Size | None,
    divided: Divides,
) -> Access:
    """`whole`: every packet lies in one run of the loop `lane`; `place` is the flat position."""
    load = definition if isinstance(definition, Load) and not definition.guard else None
    if load is not None and load.address == place:
        return Access.FLAT
    loops = {loop.var for loop in kernel.loops}
    if not any(symbols_of(expr) & loops for expr in expressions_of(definition)):
        return Access.SAME
    if not whole:
        return Access.LANE
    steps = [coefficient(expr, lane.var) for expr in expressions_of(definition)]
    if all(step == 0 for step in steps):
        return Access.SAME
    vector = load is not None and steps == [1] and divided(_start_of(load, kernel, lane))
    return Access.VECTOR if vector else Access.LANE


def _start_of(load: Load, kernel: Kernel, lane: Loop) -> Size:
    """The address of a run of the loop `lane`."""
    return substitute(load.address, {lane.var: 0}, _bounds(kernel.loops))


def extents_of(
    loops: tuple[Loop, ...],
    definitions: tuple[Definition, ...],
    stores: tuple[Store, ...],
    buffers: tuple[Buffer, ...],
) -> tuple[Extent, ...]:
    """The integers that a kernel must be given: symbolic sizes by name, then strides."""
    variables = {loop.var for loop in loops}
    used = {name for loop in loops for name in symbols_of(loop.extent)}
    used |= {name for store in stores for name in symbols_of(store.address)}
    for definition in definitions:
        used |= {name for expr in expressions_of(definition) for name in symbols_of(expr)}
        used |= _limits(definition)
    strides = [
        Extent(stride_name(b.name, axis), b.name, axis) for b in buffers for axis in range(b.rank)
    ]
    named = {extent.name for extent in strides}
    sizes = [Extent(name) for name in sorted(used - variables - named)]
    return (*sizes, *(extent for extent in strides if extent.name in used))


def _limits(definition: Definition) -> set[str]:
    if isinstance(definition, Index | Multiplied | RowScalar):
        return set()
    limits = [limit for b in condition_of(definition) for limit in (b.low, b.high)]
    limits += [definition.extent] if isinstance(definition, Gather) else []
    return {name for limit in limits for name in symbols_of(limit)}
