"""How a group runs: access width, loads in flight, block size."""

from __future__ import annotations

from itertools import dropwhile, takewhile

from ..ir.expr import Size, divides, divides_given, product
from ..ir.index import is_across
from ..ir.kernels.attention import MOST_DEPTH_SM90, Attention
from ..ir.kernels.product import Mode, Product
from ..ir.ops import Op
from ..ir.plan import (
    AttentionSchedule,
    ContractionSchedule,
    Group,
    PointwiseSchedule,
    ReductionSchedule,
    Rows,
    Sizes,
    number_at,
)
from ..ir.types import DType
from ..target import Target
from .cost import square_side
from .products.forms import choose_forms
from .windows_per_thread import windows_together


def choose_schedule(group: Group, target: Target) -> PointwiseSchedule:
    """16-byte accesses for the widest element type of the group, several in flight a thread."""
    lanes = target.access_bytes // widest_type(group).itemsize_bytes
    return PointwiseSchedule(lanes, _vectors(len(group.inputs), target), target.pointwise_threads)


def held_operands(group: Group, target: Target, sizes: Sizes) -> tuple[int, ...]:
    """The positions of operands that repeat along the first axes, with too much between one time
    and the next for the cache.
    """
    if not target.holds_operands:
        return ()
    space = group.outputs[0].type.shape
    touched = [node.type for node in (*group.inputs, *group.outputs)]
    found = []
    for index, node in enumerate(group.inputs):
        inner = _repeated_along(node.type.shape, space)
        elems = number_at(product(inner), sizes) if inner else 0
        between = sum(
            min(number_at(each.num_elems, sizes), elems) * each.dtype.itemsize_bytes
            for each in touched
        )
        if between > target.cache_bytes:
            found.append(index)
    return tuple(found)


def _repeated_along(shape: tuple[Size, ...], space: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """The last axes of the space, if these are all of an operand, and there are others."""
    own = tuple(dropwhile(lambda size: size == 1, shape))
    start = len(space) - len(own)
    repeats = any(size != 1 for size in space[:start])
    return own if own and repeats and space[start:] == own else None


def choose_reduction_schedule(
    group: Group, rows: Rows, pieces: bool, by_all: bool, target: Target
) -> ReductionSchedule:
    """16-byte accesses where every row, or every row of rows, has a whole number of them: in
    row-major operands neighbouring axes of rows, or of elements, are like one.

    What one walk condenses may be cut in pieces where a launch decides in how many; elsewhere it is
    where rows need `pieces`. All multiprocessors may keep a row together, where it is
    kept `by_all`.
    """
    if not pieces and _are_alone(group, rows):
        lanes, layers = windows_together(group, rows)
        threads = target.reduction_threads
        return ReductionSchedule(lanes, threads, cut=False, alone=True, layers=layers)
    lanes = target.access_bytes // _widest_element(group, rows).itemsize_bytes
    whole = divides(lanes, product(_innermost(rows)))
    cut = pieces or (_condenses(group, rows) and target.cuts_at_launch)
    return ReductionSchedule(
        lanes if whole else 1,
        target.reduction_threads,
        cut,
        target.shared_bytes,
        target.cluster_blocks,
        device_blocks=target.device_blocks if by_all else 0,
    )


def choose_scan_schedule(
    group: Group, rows: Rows, pieces: bool, target: Target
) -> ReductionSchedule:
    """16-byte accesses where every row, or every row of rows, has a whole number of them, or may
    have at a launch.
    """
    lanes = target.access_bytes // _widest_element(group, rows).itemsize_bytes
    run = product(_innermost(rows))
    whole = divides_given(lanes, run, run)
    return ReductionSchedule(lanes if whole else 1, target.reduction_threads, pieces)


def _innermost(rows: Rows) -> list[Size]:
    """The sizes of the last axes that are all of elements or all of rows."""
    wide = [axis for axis, size in enumerate(rows.space) if size != 1]
    run = takewhile(lambda a: (a in rows.axes) == (wide[-1] in rows.axes), reversed(wide))
    return [rows.space[axis] for axis in run]


def _condenses(group: Group, rows: Rows) -> bool:
    """Whether one walk does, and stores nothing of an element's."""
    space = product(rows.space)
    return rows.num_walks == 1 and not any(n.type.num_elems == space for n in group.outputs)


# Windows of up to so many elements are folded by one thread each, and of floats that are added:
# a chain that is longer loses digits.
MOST_ALONE, MOST_ADDED_ALONE = 1024, 256


def _are_alone(group: Group, rows: Rows) -> bool:
    """Whether rows are windows whose neighbours are in memory, too, and short."""
    if not any(node.op is Op.WINDOW for node in group.nodes) or not _condenses(group, rows):
        return False
    folds = [node for level in rows.levels for node in level]
    if any(node.op in (Op.SUMEXP, Op.DEVSQ, Op.MEAN) for node in folds):
        return False  # they take several elements at once, or need to know how many there are
    added = any(n.op in (Op.SUM, Op.PROD) and n.type.dtype.is_float for n in folds)
    most = MOST_ADDED_ALONE if added else MOST_ALONE
    short = isinstance(rows.length, int) and rows.length <= most
    return short and is_across(rows.space, rows.axes)


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


def choose_attention_schedule(attention: Attention, target: Target) -> AttentionSchedule:
    """On Hopper by wgmma, where rows fit its registers and fill most of its tiles of 64 columns."""
    fits = max(attention.depth, attention.columns) <= MOST_DEPTH_SM90 and attention.columns > 32
    family = "mma" if target.tensor_cores == "sm90" and not fits else target.tensor_cores
    return AttentionSchedule(family, 1 if attention.columns % 2 else 2)


def choose_contraction_schedule(
    product: Product, mode: Mode, target: Target, sizes: Sizes
) -> ContractionSchedule:
    """As many neighbours at once as one access of float32 moves, where they divide every row."""
    lanes = next(lanes for lanes in (4, 2, 1) if divides(lanes, product.n))
    side = square_side(product, mode, target, sizes)
    forms = choose_forms(product, mode, target.tensor_cores, sizes, side)
    return ContractionSchedule(mode, target.tensor_cores, lanes, forms)
