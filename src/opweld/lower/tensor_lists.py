"""Concatenations that kernels need not make: a kernel is given the tensors of a CAT as a list.

A kernel that finds its operand among those of a CAT, element by element, has a text of its own for
each number of tensors. Where a skeleton runs a group it is given a list of any length instead.
Where none does, PyTorch joins what are more than a few, and the kernel reads the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ir.graph import Node
from ..ir.kernels.reduction import Lowered
from ..ir.ops import Op
from ..ir.plan import Estimate, Group, GroupKind, Plan, PointwiseSchedule, in_list
from ..ir.views import is_free_view
from . import lower

# To find an element among more tensors takes longer than to join them, and a longer text.
MAX_CHOICES = 2
Runs = Callable[[Lowered], bool]


def with_tensor_lists(plan: Plan, runs: Runs) -> Plan:
    """The plan with CATs as lists wherever the kernel is then one that a skeleton `runs`; those of
    more than MAX_CHOICES tensors that a kernel cannot have so are joined before all that read them.
    """
    for cat in _joined_in_kernels(plan):
        readers = [group for group in plan.groups if _joins(group, cat)]
        lists = [found for group in readers if (found := _over_list(plan, group, cat, runs))]
        if len(lists) == len(readers) or len(cat.inputs) <= MAX_CHOICES:
            plan = _with(plan, lists)
        else:
            plan = _before(_with(plan, [_reading(group, cat) for group in readers]), cat)
    return plan


def _joined_in_kernels(plan: Plan) -> list[Node]:
    """The CATs of tensors in memory that only kernels have."""
    written = {node.serial for group in plan.groups for node in group.outputs}
    inside = (
        node
        for group in plan.groups
        for node in group.nodes
        if node.op is Op.CAT and node.serial not in written and _joins(group, node)
    )
    return list(dict.fromkeys(inside))


def _joins(group: Group, cat: Node) -> bool:
    """Whether a CAT is in the kernel of a group, which reads all tensors and computes none."""
    if group.kind not in (GroupKind.POINTWISE, GroupKind.REDUCTION) or cat not in group.nodes:
        return False
    read = {node.serial for node in group.inputs}
    return all(node.serial in read for node in in_list(cat))


def _with(plan: Plan, changed: list[Group]) -> Plan:
    """The plan with groups in place of those of the same results."""
    of = {group.outputs[0]: group for group in changed}
    return replace(plan, groups=tuple(of.get(g.outputs[0], g) for g in plan.groups))


def _before(plan: Plan, cat: Node) -> Plan:
    """The plan with a call that joins tensors before the first group that reads the result."""
    views = _between(cat)
    reason = f"{len(cat.inputs)} tensors joined for kernels that read one"
    estimate = Estimate(0, 0, "library")
    call = Group(
        "cat",
        GroupKind.LIBRARY,
        views,
        tuple(dict.fromkeys(in_list(cat))),
        (cat,),
        None,
        estimate,
        reason,
    )
    at = next(i for i, group in enumerate(plan.groups) if cat in group.inputs)
    return replace(plan, groups=(*plan.groups[:at], call, *plan.groups[at:]))


def _between(cat: Node) -> tuple[Node, ...]:
    """The CAT, and the views of its tensors before it."""
    found = {cat.serial: cat}
    waiting = list(cat.inputs)
    while waiting:
        node = waiting.pop()
        if is_free_view(node):
            found[node.serial] = node
            waiting.extend(node.inputs)
    return tuple(found[serial] for serial in sorted(found))


def _over_list(plan: Plan, group: Group, cat: Node, runs: Runs) -> Group | None:
    """The group over a list in place of the CAT; None where no skeleton runs it."""
    if group.listed is not None:
        return None
    found = _listed(group, cat)
    (lowered,) = lower(replace(plan, groups=(found,)))
    return found if runs(lowered) else None


def _listed(group: Group, cat: Node) -> Group:
    """The group with the CAT as a list of tensors."""
    schedule = group.schedule
    if isinstance(schedule, PointwiseSchedule):
        schedule = replace(schedule, vectors=1)
    found = replace(_reading(group, cat), schedule=schedule, reuse=None, held=())
    return replace(found, listed=found.inputs.index(cat))


def _reading(group: Group, cat: Node) -> Group:
    """The group with the CAT among its operands, in the place of the first of its tensors."""
    members = tuple(node for node in group.nodes if node is not cat)
    nodes = _needed(group.outputs, members)
    read = {operand.serial for node in nodes for operand in node.inputs}
    tensors = {node.serial for node in in_list(cat)}
    found: dict[Node, None] = {}
    for node in group.inputs:
        if node.serial in tensors:
            found[cat] = None
        if node.serial in read:
            found[node] = None
    inputs = tuple(found)
    place = {node: index for index, node in enumerate(inputs)}
    reuse = None if group.reuse is None else place[group.inputs[group.reuse]]
    held = tuple(place[group.inputs[each]] for each in group.held if group.inputs[each] in place)
    return replace(group, nodes=nodes, inputs=inputs, reuse=reuse, held=held)


def _needed(results: tuple[Node, ...], members: tuple[Node, ...]) -> tuple[Node, ...]:
    """Those of the members that the results need."""
    needed: set[int] = set()
    known = {node.serial for node in members}
    waiting = list(results)
    while waiting:
        node = waiting.pop()
        if node.serial in known and node.serial not in needed:
            needed.add(node.serial)
            waiting.extend(node.inputs)
    return tuple(node for node in members if node.serial in needed)
