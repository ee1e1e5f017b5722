"""How a group runs: access width, loads in flight, block size."""

from __future__ import annotations

from ..ir.expr import divides
from ..ir.plan import ContractionSchedule, Group, PointwiseSchedule, ReductionSchedule, Rows
from ..ir.product import Mode, Product
from ..ir.types import DType
from ..target import Target


def choose_schedule(group: Group, target: Target) -> PointwiseSchedule:
    """16-byte accesses for the widest element type of the group, several in flight a thread."""
    lanes = target.access_bytes // widest_type(group).itemsize_bytes
    return PointwiseSchedule(lanes, _vectors(len(group.inputs), target), target.pointwise_threads)


def choose_reduction_schedule(
    group: Group, rows: Rows, cut: bool, target: Target
) -> ReductionSchedule:
    """16-byte accesses where every row, or every row of rows, has a whole number of them."""
    lanes = target.access_bytes // widest_type(group).itemsize_bytes
    innermost = [size for size in rows.space if size != 1][-1:]
    whole = all(divides(lanes, size) for size in innermost)
    return ReductionSchedule(lanes if whole else 1, target.reduction_threads, cut)


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
