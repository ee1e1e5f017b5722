"""A group of scans -> its two halves: what is scanned of an element, and what is computed after."""

from __future__ import annotations

from dataclasses import replace

from ..ir.expr import divides_given
from ..ir.index import is_across, space_coords
from ..ir.kernels.kernel import RowScalar
from ..ir.kernels.levels import Levels, Place
from ..ir.kernels.reduction import Fold, Folding, Scan, Step, Walk
from ..ir.plan import Group, ReductionSchedule
from .names import Names
from .pointwise import Origins, buffers_of, by_strides, row_major
from .reduction import (
    Context,
    Known,
    StepMaker,
    as_variant,
    extents_of_steps,
    lane_of,
    loops_of,
    merged,
    with_lanes,
)


def lower_scan(origins: Origins, group: Group) -> Scan:
    """Both foldings of a group: `contiguous` with few loops and vectors, and `strided`."""
    rows, schedule = group.rows, group.schedule
    assert rows and isinstance(schedule, ReductionSchedule), "a scan has rows"
    levels = Levels(frozenset(node.serial for node in group.nodes), rows.space, rows.axes)
    alone = replace(schedule, lanes=1)
    flat = Context(origins, group, rows, row_major, levels)
    contiguous = merged(_folding(flat, schedule))
    if not _in_packets(contiguous):
        # An operand that is broadcast along a part of the axes keeps them apart.
        contiguous = merged(_folding(flat, alone))
    strided = _folding(Context(origins, group, rows, by_strides, levels), alone)
    ((first, *_),) = rows.levels
    return Scan(
        group.name,
        with_lanes(contiguous),
        as_variant(strided, "strided"),
        num_rows=rows.num_rows,
        length=rows.length,
        reverse=first.attrs.reverse,
        exclusive=first.attrs.exclusive,
        cut=schedule.cut,
    )


def _in_packets(folding: Folding) -> bool:
    """Whether neighbours come in packets wherever all of what a launch counts do."""
    return divides_given(folding.lanes, lane_of(folding).extent, folding.tested)


def _folding(context: Context, schedule: ReductionSchedule) -> Folding:
    rows = context.rows
    kept, reduced = loops_of(rows)
    buffers = buffers_of(context.group)
    names = Names({buffer.name for buffer in buffers})
    steps = _halves(StepMaker(context, schedule, buffers, names, kept, reduced))
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
        scanned=True,
    )


def _halves(maker: StepMaker) -> tuple[Step, Step]:
    rows = maker.context.rows
    everywhere = space_coords(rows.space, rows.axes)
    (scans,) = rows.levels
    scanned = _distinct([(node.inputs[0], everywhere) for node in scans])
    loops = (*maker.kept, *maker.reduced)
    before = maker.kernel("scanned", scanned, [], {}, loops)
    folds = tuple(
        Fold(
            maker.names.fresh(node.op.value, always_number=True),
            node.op,
            node.type.dtype,
            scanned.index((node.inputs[0], everywhere)),
        )
        for node in scans
    )
    known: Known = {
        (node.serial, everywhere): RowScalar(fold.name, fold.dtype)
        for node, fold in zip(scans, folds, strict=True)
    }
    after = maker.kernel("after", [], maker.context.results, known, loops)
    return Step(Walk(before, folds), None), Step(Walk(after, ()), None)


def _distinct(places: list[Place]) -> list[Place]:
    return list(dict.fromkeys(places))
