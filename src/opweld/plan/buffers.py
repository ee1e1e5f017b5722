"""Which results may take the memory of an intermediate that nobody reads afterwards."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..ir.attrs import CopyAttrs
from ..ir.graph import Node
from ..ir.ops import Kind
from ..ir.plan import Group, GroupKind
from ..ir.views import behind_views
from .places import HERE, places_of
from .uses import Uses


def reuse_buffers(uses: Uses, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Each pointwise group with its `reuse` operand chosen."""
    read = Counter(
        source.serial for group in groups for source in {behind_views(n) for n in group.inputs}
    )
    return tuple(
        replace(group, reuse=_reusable(uses, read, group))
        if group.kind is GroupKind.POINTWISE
        else group
        for group in groups
    )


def _reusable(uses: Uses, read: Counter[int], group: Group) -> int | None:
    if isinstance(group.outputs[0].attrs, CopyAttrs):
        return None  # it may lie otherwise
    ways = places_of(group.nodes, group.outputs)
    assert ways is not None, "places without a limit are counted to the end"
    for position, operand in enumerate(group.inputs):
        dies_here = read[operand.serial] == 1 and operand.serial not in uses.returned
        # Read elsewhere, an element would be overwritten before its turn.
        in_place = ways[operand.serial] == {HERE}
        same_type = operand.type == group.outputs[0].type
        if dies_here and in_place and same_type and _is_fresh(operand):
            return position
    return None


FRESH_RESULTS = frozenset(
    f"aten.{name}.default"
    for name in ("linear", "addmm", "mm", "matmul", "bmm", "conv1d", "conv2d", "conv3d")
)
"""Calls whose result is never a view of an operand, so that its memory may be overwritten."""


def _is_fresh(operand: Node) -> bool:
    if operand.kind is Kind.OPAQUE:
        return getattr(operand.attrs, "target", "") in FRESH_RESULTS
    return operand.kind is Kind.POINTWISE
