"""Which results of weights alone are kept from call to call, as packed weights are."""

from __future__ import annotations

from dataclasses import replace

from ...ir.graph import Graph
from ...ir.ops import Op
from ...ir.plan import Conditions, Group, GroupKind, number_at
from ...ir.types import DType
from ...target import Target

_LEAST_BYTES = 2**20
"""Of a weight: reading less takes no longer than finding out whether it is as it was."""


def with_kept_results(
    graph: Graph, groups: tuple[Group, ...], target: Target, conditions: Conditions
) -> tuple[Group, ...]:
    """The groups, of which reductions of one large weight keep what they give."""
    if not conditions.weight_cache or not target.keeps_results:
        return groups
    return tuple(
        replace(group, kept=True, reason=f"{group.reason}; {_reason(group)}")
        if _is_of_one_weight(graph, group, conditions)
        else group
        for group in groups
    )


def _is_of_one_weight(graph: Graph, group: Group, conditions: Conditions) -> bool:
    if group.kind is not GroupKind.REDUCTION or len(group.inputs) != 1:
        return False
    weight = group.inputs[0]
    return (
        weight.op is Op.WEIGHT
        and weight.attrs.access not in graph.changed
        and number_at(weight.type.size_bytes, conditions.sizes) >= _LEAST_BYTES
        and all(node.type.dtype is DType.F32 for node in (weight, *group.outputs))
    )


def _reason(group: Group) -> str:
    kept = sum(number_at(node.type.size_bytes) for node in group.outputs)
    return f"{kept / 1e6:.2g} MB are kept, and made again only where the weight changed"
