"""Plan -> Kernels: loops, index maps, access widths, launch geometry."""

from __future__ import annotations

from ..ir.kernel import Welded
from ..ir.plan import GroupKind, Plan
from .pointwise import lower_group


def lower(plan: Plan) -> tuple[Welded, ...]:
    """The kernels of every welded group, in the plan's order."""
    origins = dict(plan.graph.origins)
    welded = (group for group in plan.groups if group.kind is GroupKind.POINTWISE)
    return tuple(lower_group(origins, group) for group in welded)
