"""Concatenations that kernels need not make: a kernel is given the tensors of a CAT as a list.

A kernel that finds its operand among those of a CAT, element by element, has a text of its own for
each number of tensors. Where a skeleton runs a group it is given a list of any length instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ir.graph import Node
from ..ir.ops import Op
from ..ir.plan import Group, GroupKind, Plan, PointwiseSchedule, in_list
from ..ir.reduction import Lowered
from . import lower

Runs = Callable[[Lowered], bool]


def with_tensor_lists(plan: Plan, runs: Runs) -> Plan:
    """The plan with CATs as lists wherever the kernel is then one that a skeleton `runs`."""
    written = {node.serial for group in plan.groups for node in group.outputs}
    groups = tuple(_over_list(plan, group, written, runs) or group for group in plan.groups)
    return replace(plan, groups=groups)


def _over_list(plan: Plan, group: Group, written: set[int], runs: Runs) -> Group | None:
    """The group over a list in place of the first CAT that allows it; None where none does."""
    if group.kind not in (GroupKind.POINTWISE, GroupKind.REDUCTION):
        return None
    for node in group.nodes:
        if node.op is Op.CAT and node.serial not in written and _is_in_memory(group, node):
            found = _listed(group, node)
            (lowered,) = lower(replace(plan, groups=(found,)))
            if runs(lowered):
                return found
    return None


def _is_in_memory(group: Group, cat: Node) -> bool:
    """Whether the group reads all tensors of a CAT, and computes none of them."""
    read = {node.serial for node in group.inputs}
    return all(node.serial in read for node in in_list(cat))


def _listed(group: Group, cat: Node) -> Group:
    """The group with the CAT among its operands, in the place of the first of its tensors."""
    nodes = _needed(group, cat)
    read = {operand.serial for node in nodes for operand in node.inputs}
    tensors = {node.serial for node in in_list(cat)}
    inputs: dict[Node, None] = {}
    for node in group.inputs:
        if node.serial in tensors:
            inputs[cat] = None
        if node.serial in read:
            inputs[node] = None
    schedule = group.schedule
    if isinstance(schedule, PointwiseSchedule):
        schedule = replace(schedule, vectors=1)
    return replace(
        group,
        nodes=nodes,
        inputs=tuple(inputs),
        schedule=schedule,
        reuse=None,
        held=(),
        listed=list(inputs).index(cat),
    )


def _needed(group: Group, cat: Node) -> tuple[Node, ...]:
    """The nodes that the results need beside the CAT."""
    needed: set[int] = set()
    members = {node.serial for node in group.nodes}
    waiting = list(group.outputs)
    while waiting:
        node = waiting.pop()
        if node is not cat and node.serial in members and node.serial not in needed:
            needed.add(node.serial)
            waiting.extend(node.inputs)
    return tuple(node for node in group.nodes if node.serial in needed)
