"""What an account says of each group of a plan."""

from __future__ import annotations

from dataclasses import replace

from opweld.compiled import PlanRow
from opweld.ir.calls import condensing_lines, module_of, places_of
from opweld.ir.expr import evaluate
from opweld.ir.graph import Node
from opweld.ir.ops import Kind, Op
from opweld.ir.original import Part
from opweld.ir.plan import Group, GroupKind
from opweld.plan.cost import replaced_copies
from opweld.target import Target


def kept_row(state: str, reason: str) -> PlanRow:
    return PlanRow("forward", GroupKind.LIBRARY.value, (), reason, variant=state)


def left_row(paths: str, reason: str) -> PlanRow:
    """What runs as it is in a model that no graph holds."""
    return PlanRow("forward", GroupKind.LIBRARY.value, (), reason, module=paths)


def row_of(group: Group, target: Target, part: Part) -> PlanRow:
    variant = part.variant
    sizes = tuple((fact.name, fact.example) for fact in variant.contract.symbols)
    ops = tuple(_op_name(node) for node in group.nodes if node.kind is not Kind.SOURCE)
    row = PlanRow(group.name, group.kind.value, ops, group.reason, variant=variant.state)
    row = replace(row, lines=condensing_lines(group, part.plan), planned_name=group.planned_name)
    row = replace(row, places=places_of(group, part.plan))
    row = replace(row, module=module_of(group, part.plan, variant.submodule))
    if not group.fused:
        return row
    row = replace(row, replaced_copies=replaced_copies(group, target, sizes))
    if group.traffic is not None:
        moved = group.traffic
        row = replace(row, must_bytes=moved.must_bytes, moved_bytes=moved.moved_bytes)
    return replace(row, flops=evaluate(group.estimate.flops, dict(sizes)))


def _op_name(node: Node) -> str:
    return str(node.attrs.target) if node.op is Op.CALL else node.op.value
