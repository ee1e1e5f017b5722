"""A reduction -> its foldings: walks over the elements of a row, and scalars of the row between.

Every walk and everything between is a kernel made as a pointwise group's is: from its results back
to loads. What is known of the row by then stands in place of the nodes that made it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..ir.expr import Size, coefficient, divides, each_term, substitute, without_symbols
from ..ir.graph import Node
from ..ir.index import Coords, is_across, result_coords, row_coords, space_coords
from ..ir.kernels.kernel import (
    Buffer,
    Element,
    Extent,
    Gather,
    Kernel,
    Loop,
    RowScalar,
    Store,
    expressions_of,
)
from ..ir.kernels.levels import Levels, is_of_row
from ..ir.kernels.reduction import Fold, Folding, Once, Overlap, Reduction, Step, Value, Walk
from ..ir.plan import Group, ReductionSchedule, Rows
from .axes import axes_of_rows
from .names import Names
from .pointwise import (
    Addressing,
    Builder,
    Origins,
    buffers_of,
    by_strides,
    gathers_in,
    params_of,
    row_major,
)
from .rounding import rounded_products
from .space import NO_VALUES, accessed, extents_of, merge_together

Change = Callable[[Kernel], Kernel]
Known = dict[tuple[int, Coords], RowScalar]
"""Scalars of the row, by the node that made them and where it is evaluated."""


def lower_reduction(
    origins: Origins, group: Group, values: Mapping[str, Size] = NO_VALUES
) -> Reduction:
    """Both foldings of a group: `contiguous` with few loops and vectors, and `strided`.

    Of a group over named sizes, `values` are those for which lanes are chosen.
    """
    rows, schedule = group.rows, group.schedule
    assert rows and isinstance(schedule, ReductionSchedule), "a reduction has rows"
    levels = Levels(frozenset(node.serial for node in group.nodes), rows.space, rows.axes)
    alone = replace(schedule, lanes=1)
    flat = Context(origins, group, rows, row_major, levels)
    contiguous = merged(_folding(flat, schedule))
    run = substitute(lane_of(contiguous).extent, values)
    if not schedule.alone and not divides(schedule.lanes, run):
        # An operand that is broadcast along a part of the axes keeps them apart.
        contiguous = merged(_folding(flat, alone))
    strided = _folding(Context(origins, group, rows, by_strides, levels), alone)
    return Reduction(
        group.name,
        _with_overlaps(with_lanes(_with_multiples(contiguous, values)), schedule),
        as_variant(strided, "strided"),
        num_rows=rows.num_rows,
        length=rows.length,
        cut=schedule.cut,
        axes=axes_of_rows(group, strided),
        unpacked=schedule.unpacked,
        kept=group.kept,
    )


@dataclass(frozen=True, slots=True)
class Context:
    origins: Origins
    group: Group
    rows: Rows
    address: Addressing
    levels: Levels

    @property
    def results(self) -> list[tuple[Node, Coords]]:
        """Each result, and where it is evaluated."""
        found = []
        for node in self.group.outputs:
            coords = result_coords(node.type.shape, self.rows.space, self.rows.axes)
            assert coords is not None, "a result has the shape of the space or of the rows"
            found.append((node, coords))
        return found


def _folding(context: Context, schedule: ReductionSchedule) -> Folding:
    rows = context.rows
    kept, reduced = loops_of(rows)
    buffers = buffers_of(context.group)
    names = Names({buffer.name for buffer in buffers})
    maker = StepMaker(context, schedule, buffers, names, kept, reduced)
    steps = maker.steps()
    return Folding(
        name=context.group.name,
        variant="contiguous",
        buffers=buffers,
        extents=extents_of_steps(steps),
        kept=kept,
        reduced=reduced,
        across=is_across(rows.space, rows.axes),
        steps=steps,
        lanes=schedule.lanes,
        threads=schedule.threads,
        shared_bytes=schedule.shared_bytes,
        multiprocessors=schedule.multiprocessors,
        device_blocks=schedule.device_blocks,
        alone=schedule.alone,
    )


def loops_of(rows: Rows) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    coords = space_coords(rows.space, rows.axes)
    every = [
        (axis in rows.axes, Loop(str(c), size))
        for axis, (c, size) in enumerate(zip(coords, rows.space, strict=True))
        if size != 1
    ]
    kept = tuple(loop for of_row, loop in every if not of_row)
    reduced = tuple(loop for of_row, loop in every if of_row)
    return kept or (Loop("i0", 1),), reduced or (Loop("r0", 1),)


def extents_of_steps(steps: Iterable[Step]) -> tuple[Extent, ...]:
    """Those of all kernels, sizes first."""
    kernels = [kernel for step in steps for kernel in step.kernels]
    found = dict.fromkeys(extent for kernel in kernels for extent in kernel.extents)
    return tuple(sorted(found, key=lambda extent: extent.buffer is not None))


def merged(folding: Folding) -> Folding:
    """The folding with neighbouring loops made one, kept ones and reduced ones, wherever every
    address in every step allows it.
    """
    folding, kept = _with_loops_merged(folding, folding.kept, "i")
    folding = replace(folding, kept=kept)  # bounds go by the new names
    folding, reduced = _with_loops_merged(folding, folding.reduced, "r")
    steps = tuple(_with_loops(step, kept, reduced) for step in folding.steps)
    return replace(folding, reduced=reduced, steps=steps, extents=extents_of_steps(steps))


def _with_loops_merged(
    folding: Folding, loops: tuple[Loop, ...], prefix: str
) -> tuple[Folding, tuple[Loop, ...]]:
    others = tuple(loop for loop in (*folding.kept, *folding.reduced) if loop not in loops)
    kernels, merged = merge_together(folding.kernels, loops, others, prefix)
    made = iter(kernels)
    steps = tuple(
        Step(
            replace(step.walk, kernel=next(made)),
            replace(step.once, kernel=next(made)) if step.once else None,
        )
        for step in folding.steps
    )
    return replace(folding, steps=steps), merged


def _with_loops(step: Step, kept: tuple[Loop, ...], reduced: tuple[Loop, ...]) -> Step:
    return _mapped(
        step,
        lambda kernel: _over(kernel, (*kept, *reduced)),
        lambda kernel: _over(kernel, kept),
    )


def _over(kernel: Kernel, loops: tuple[Loop, ...]) -> Kernel:
    extents = extents_of(loops, kernel.definitions, kernel.stores, kernel.buffers)
    return replace(kernel, loops=loops, extents=extents)


def lane_of(folding: Folding) -> Loop:
    """The loop in which elements are neighbours in memory."""
    return folding.kept[-1] if folding.across else folding.reduced[-1]


def _with_multiples(folding: Folding, values: Mapping[str, Size]) -> Folding:
    """The folding with the sizes that are whole numbers of packets at these values: of the runs
    that lanes lie in, and of what these begin behind.
    """
    lane = lane_of(folding)
    loops = {loop.var: loop.extent for loop in (*folding.kept, *folding.reduced)}
    places = [lane.extent]
    for kernel in folding.kernels:
        exprs = [expr for d in kernel.definitions for expr in expressions_of(d)]
        exprs += [store.address for store in kernel.stores]
        starts = (substitute(expr, {lane.var: 0}, loops) for expr in exprs)
        places += [without_symbols(term, loops) for start in starts for term in each_term(start)]
    for size in places:
        here = divides(folding.lanes, substitute(size, values))
        if here and not folding.divides(size):
            folding = replace(folding, multiples=(*folding.multiples, size))
    return folding


def with_lanes(folding: Folding) -> Folding:
    """Each definition's access chosen: neighbours are those of a row, or as many rows."""
    lane = lane_of(folding)
    steps = tuple(
        _mapped(
            step,
            lambda kernel: accessed(kernel, lane, folding.divides),
            lambda kernel: accessed(kernel, lane, folding.divides) if folding.across else kernel,
        )
        for step in folding.steps
    )
    return replace(folding, steps=steps)


def _with_overlaps(folding: Folding, schedule: ReductionSchedule) -> Folding:
    """Rows alone have lanes where these share what they read."""
    if not folding.alone:
        return folding
    found = tuple(
        overlap
        for place, lanes in ((-3, schedule.layers), (-2, schedule.lanes))
        if lanes > 1 and (overlap := _overlap(folding, place, lanes))
    )
    return replace(folding, lanes=math.prod(each.lanes for each in found), overlaps=found)


def _overlap(folding: Folding, place: int, lanes: int) -> Overlap | None:
    """Of neighbours in the kept loop at `place`."""
    if len(folding.kept) < -place:
        return None
    kept = folding.kept[place]
    if not isinstance(kept.extent, int) or kept.extent < lanes:
        return None
    (walk,) = (step.walk.kernel for step in folding.steps)
    exprs = [expr for d in walk.definitions for expr in expressions_of(d)]
    for loop in folding.reduced:
        steps = {_shift(expr, kept.var, loop.var) for expr in exprs} - {0}
        step = steps.pop() if len(steps) == 1 else None
        if step and isinstance(loop.extent, int) and step < loop.extent:
            return Overlap(loop.var, step, kept.var, kept.extent, lanes)
    return None


def _shift(expr: Size, row: str, place: str) -> int | None:
    """By how many turns of loop `place` an expression moves with `row`: 0 if it knows neither, None
    if by no number that is known.
    """
    of_row, of_place = coefficient(expr, row), coefficient(expr, place)
    if of_row == 0 and of_place == 0:
        return 0
    if not isinstance(of_row, int) or not isinstance(of_place, int) or of_place == 0:
        return None
    return of_row // of_place if of_row > 0 and of_row % of_place == 0 else None


def as_variant(folding: Folding, variant: str) -> Folding:
    def named(kernel: Kernel) -> Kernel:
        return replace(kernel, variant=variant)

    steps = tuple(_mapped(step, named, named) for step in folding.steps)
    return replace(folding, variant=variant, steps=steps)


def _mapped(step: Step, walk: Change, once: Change) -> Step:
    return Step(
        replace(step.walk, kernel=walk(step.walk.kernel)),
        replace(step.once, kernel=once(step.once.kernel)) if step.once else None,
    )


@dataclass(slots=True)
class StepMaker:
    """Makes the steps of one folding; `known` grows with each."""

    context: Context
    schedule: ReductionSchedule
    buffers: tuple[Buffer, ...]
    names: Names
    kept: tuple[Loop, ...]
    reduced: tuple[Loop, ...]
    places: dict[Gather, str] = field(default_factory=dict)

    def steps(self) -> tuple[Step, ...]:
        rows = self.context.rows
        known: Known = {}
        everywhere = space_coords(rows.space, rows.axes)
        folded = [(node.inputs[0], everywhere) for level in rows.levels for node in level]
        stored = [place for place in self.context.results if not is_of_row(place[1])]
        needed = self.context.levels.of_rows([*folded, *stored])
        steps = []
        for walk in range(rows.num_walks):
            level = rows.levels[walk] if walk < len(rows.levels) else ()
            made = self._walk(walk, level, known)
            known |= {
                (node.serial, row_coords(rows.space, rows.axes)): RowScalar(fold.name, fold.dtype)
                for node, fold in zip(level, made.folds, strict=True)
            }
            steps.append(Step(made, self._once(walk, needed, known) if level else None))
        return tuple(steps)

    def _walk(self, number: int, level: tuple[Node, ...], known: Known) -> Walk:
        rows = self.context.rows
        everywhere = space_coords(rows.space, rows.axes)
        folded = [(node.inputs[0], everywhere) for node in level]
        stored = [
            (node, coords)
            for node, coords in self.context.results
            if not is_of_row(coords) and self.context.levels.of(node, coords) == number
        ]
        kernel = self.kernel(f"pass{number}", folded, stored, known, (*self.kept, *self.reduced))
        folds = tuple(
            Fold(
                self.names.fresh(node.op.value, always_number=True),
                node.op,
                node.type.dtype,
                result,
            )
            for result, node in enumerate(level)
        )
        return Walk(kernel, folds)

    def _once(self, number: int, needed: list[tuple[Node, Coords]], known: Known) -> Once | None:
        level = number + 1
        wanted = [(n, c) for n, c in needed if self.context.levels.of(n, c) == level]
        stored = [
            (node, coords)
            for node, coords in self.context.results
            if is_of_row(coords) and self.context.levels.of(node, coords) == level
        ]
        if not wanted and not stored:
            return None
        kernel = self.kernel(f"once{number}", wanted, stored, known, self.kept)
        values = tuple(
            Value(self.names.fresh(node.op.value, always_number=True), node.type.dtype, result)
            for result, (node, _) in enumerate(wanted)
        )
        for (node, coords), value in zip(wanted, values, strict=True):
            known[node.serial, coords] = RowScalar(value.name, value.dtype)
        return Once(kernel, values)

    def kernel(
        self,
        part: str,
        given_back: list[tuple[Node, Coords]],
        stored: list[tuple[Node, Coords]],
        known: Known,
        loops: tuple[Loop, ...],
    ) -> Kernel:
        """The kernel whose element has first the values given back, then those stored."""
        context, group = self.context, self.context.group
        read = {node.serial: self.buffers[i] for i, node in enumerate(group.inputs)}
        bounds = {loop.var: loop.extent for loop in (*self.kept, *self.reduced)}
        names = Names(self.names.taken | {given.name for given in known.values()})
        builder = Builder(
            context.origins,
            read,
            names,
            context.address,
            bounds,
            given=dict(known),
            picks=gathers_in(group.nodes),
            places=self.places,
            rounded=rounded_products(group.nodes),
        )
        results = tuple(
            (node.type.dtype, builder.value(node, coords, ()))
            for node, coords in (*given_back, *stored)
        )
        stores = tuple(
            self._store(node, index) for index, (node, _) in enumerate(stored, len(given_back))
        )
        definitions = tuple(builder.definitions)
        element = Element(
            f"{group.name}_{part}", params_of(builder, results), tuple(builder.lets), results
        )
        return Kernel(
            name=group.name,
            variant="contiguous",
            comment=group.reason,
            buffers=self.buffers,
            extents=extents_of(loops, definitions, stores, self.buffers),
            loops=loops,
            definitions=definitions,
            element=element,
            stores=stores,
            lanes=self.schedule.lanes,
            vectors=1,
            threads=self.schedule.threads,
        )

    def _store(self, node: Node, result: int) -> Store:
        position = self.context.group.outputs.index(node)
        buffer = self.buffers[len(self.context.group.inputs) + position]
        _, coords = self.context.results[position]
        return Store(buffer.name, buffer.dtype, self.context.address(buffer, node, coords), result)
