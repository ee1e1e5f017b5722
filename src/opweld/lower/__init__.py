"""Plan -> Kernels: loops, index maps, access widths, launch geometry."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.kernels.levels import NotOfRow
from ..ir.kernels.reduction import Lowered
from ..ir.plan import Group, GroupKind, Lifting, Plan
from .attention import lower_attention
from .contraction import lower_contraction
from .convolution import lower_convolution
from .pointwise import Origins, lower_group
from .reduction import lower_reduction
from .row_blocks import lower_row_blocks
from .scan import lower_scan

_LOWERINGS: dict[GroupKind, Callable[[Origins, Group], Lowered]] = {
    GroupKind.POINTWISE: lower_group,
    GroupKind.CONTRACTION: lower_contraction,
    GroupKind.CONVOLUTION: lower_convolution,
    GroupKind.ATTENTION: lower_attention,
    GroupKind.REDUCTION: lower_reduction,
    GroupKind.SCAN: lower_scan,
    GroupKind.ROW_BLOCKS: lower_row_blocks,
}


def lower_lifted(origins: Origins, lifting: Lifting, in_packets: bool) -> Lowered | None:
    """The kernels of a group over named sizes; None where its walks need the numbers.

    Accesses are chosen for the numbers where a target moves elements `in_packets`.
    """
    values = dict(lifting.values)
    if lifting.group.kind is GroupKind.CONVOLUTION:
        return lower_convolution(origins, lifting.group)
    if lifting.group.kind is GroupKind.CONTRACTION:
        return lower_contraction(origins, lifting.group)
    if lifting.group.kind is not GroupKind.REDUCTION:
        return lower_group(origins, lifting.group, values if in_packets else {})
    try:
        return lower_reduction(origins, lifting.group, values)
    except NotOfRow:
        return None


def lower(plan: Plan) -> tuple[Lowered, ...]:
    """The kernels of every fused group, in the plan's order."""
    origins = dict(plan.graph.origins)
    return tuple(_LOWERINGS[group.kind](origins, group) for group in plan.groups if group.fused)
