"""How a group runs: access width, loads in flight, block size."""

from __future__ import annotations

from itertools import takewhile

from ..ir.expr import Size, divides, product
from ..ir.plan import ContractionSchedule, Group, PointwiseSchedule, ReductionSchedule, Rows
from ..ir.product import Mode, Product
from ..ir.types import DType
from ..target import Target


def choose_schedule(group: Group, target: Target) -> PointwiseSchedule:
    """16-byte accesses for the widest element type of the group, several in flight a thread."""
    lanes = target.access_bytes // widest_type(group).itemsize_bytes
    return PointwiseSchedule(lanes, _vectors(len(group.inputs), target), target.pointwise_threads)


def choose_reduction_schedule(
    group: Group, rows: Rows, pieces: bool, target: Target
) -> ReductionSchedule:
    """16-byte accesses where every row, or every row of rows, has a whole number of them: in
    row-major operands neighbouring axes of rows, or of elements, are like one.

    What one walk condenses may be cut in pieces where a launch decides in how many; elsewhere it is
    where rows need `pieces`.
    """
    lanes = target.access_bytes // _widest_element(group, rows).itemsize_bytes
    whole = divides(lanes, product(_innermost(rows)))
    condenses = rows.num_walks == 1 and not any(
        node.type.num_elems == product(rows.space) for node in group.outputs
    )
    cut = pieces or (condenses and target.cuts_at_launch)
    return ReductionSchedule(
        lanes if whole else 1,
        target.reduction_threads,
        cut,
        target.shared_bytes,
        target.cluster_blocks,
    )


def _innermost(rows: Rows) -> list[Size]:
    """The sizes of the last axes that are all of elements or all of rows."""
    wide = [axis for axis, size in enumerate(rows.space) if size != 1]
    run = takewhile(lambda a: (a in rows.axes) == (wide[-1] in rows.axes), reversed(wide))
    return [rows.space[axis] for axis in run]


def _widest_element(group: Group, rows: Rows) -> DType:
    """The widest element type of what a walk reads and writes element by element."""
    size = product(rows.space)
    whole = [n.type.dtype for n in (*group.inputs, *group.outputs) if n.type.num_elems == size]
    return max(whole or [widest_type(group)], key=lambda dtype: dtype.itemsize_bytes)


def widest_type(group: Group) -> DType:
    """The first of the widest element types of operands and results."""
    types = [node.type.dtype for node in (*group.inputs, *group.outputs)]
    return max(types, key=lambda dtype: dtype.itemsize_bytes)


def _vectors(num_inputs: int, target: Target) -> int:
    """Fewer accesses of each operand where there are more: what counts is bytes in flight."""
    return max(1, target.loads_in_flight // max(1, num_inputs))


def choose_contraction_schedule(
    product: Product, mode: Mode, target: Target
) -> ContractionSchedule:
    """Two neighbours at once, as the tensor core gives them, where every row has an even length."""
    return ContractionSchedule(mode, target.tensor_cores, 2 if divides(2, product.n) else 1)
