"""Which results may take the memory of an intermediate that nobody reads afterwards."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node
from ..ir.ops import Kind
from ..ir.plan import Group, GroupKind
from .fusion import behind_views


def reuse_buffers(graph: Graph, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Each pointwise group with its `reuse` operand chosen."""
    return tuple(
        replace(group, reuse=_reusable(graph, groups, index))
        if group.kind is GroupKind.POINTWISE
        else group
        for index, group in enumerate(groups)
    )


def _reusable(graph: Graph, groups: tuple[Group, ...], index: int) -> int | None:
    group = groups[index]
    for position, operand in enumerate(group.inputs):
        same_type = operand.type == group.outputs[0].type
        if same_type and _is_fresh(operand) and _dies_here(graph, groups, index, operand):
            if _read_elementwise(group, operand):
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


def _dies_here(graph: Graph, groups: tuple[Group, ...], index: int, operand: Node) -> bool:
    if any(behind_views(output) is operand for output in graph.outputs):
        return False
    others = (g for i, g in enumerate(groups) if i != index)
    return not any(operand in map(behind_views, g.inputs) for g in others)


def _read_elementwise(group: Group, operand: Node) -> bool:
    """Whether each element is read only where the result's same element is written."""
    return all(
        node.kind is Kind.POINTWISE and node.type.shape == operand.type.shape
        for node in group.nodes
        if operand in node.inputs
    )
