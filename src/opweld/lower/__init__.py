"""Plan -> Kernels: loops, index maps, access widths, launch geometry."""

from __future__ import annotations

from ..ir.kernel import Welded
from ..ir.plan import GroupKind, Plan
from .pointwise import lower_group


def lower(plan: Plan) -> tuple[Welded, ...]:
    """The kernels of every welded group, in the plan's order."""
    return tuple(
        lower_group(plan.graph, group) for group in plan.groups if group.kind is GroupKind.POINTWISE
    )
