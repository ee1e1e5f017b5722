"""The rows of an account's plan, and the texts that belong to them: pure functions of the parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from opweld.compiled import PlanRow
from opweld.ir.calls import condensing_lines, module_of, places_of
from opweld.ir.expr import evaluate
from opweld.ir.graph import Node, leaves_of
from opweld.ir.ops import Kind, Op
from opweld.ir.original import Part
from opweld.ir.plan import Group, GroupKind, Plan
from opweld.ir.views import behind_views
from opweld.plan.cost import replaced_copies
from opweld.target import Target

LIBRARY = GroupKind.LIBRARY.value


def rows_of(parts: Iterable[Part], target: Target) -> list[PlanRow]:
    """One row a group, in running order, with what it reads of the earlier ones of its part."""
    rows: list[PlanRow] = []
    for part in parts:
        sources = _Sources(part.plan, len(rows))
        rows += [_row(group, target, part, sources) for group in part.plan.groups]
    return [replace(row, number=number) for number, row in enumerate(rows)]


def kept_row(state: str, reason: str) -> PlanRow:
    """A state of the model in which the original runs."""
    return PlanRow("forward", LIBRARY, (), reason, variant=state)


def left_row(paths: str, reason: str) -> PlanRow:
    """What runs as it is in a model that no graph holds."""
    return PlanRow("forward", LIBRARY, (), reason, module=paths)


def line_texts(parts: Iterable[Part]) -> dict[str, str]:
    """The user's lines that the parts compute, by their places ("gelu.py:14")."""
    found = {origin.place: origin.line for part in parts for _, origin in part.plan.graph.origins}
    return dict(sorted(found.items()))


class _Sources:
    """Which group of a plan, or which input of the forward, a value comes from.

    Views, and results of calls that have several, stand for what they are of.
    """

    def __init__(self, plan: Plan, first: int) -> None:
        self._groups = {
            node.serial: number
            for number, group in enumerate(plan.groups, first)
            if group.kind is not GroupKind.VIEW and not is_item(group)
            for node in group.outputs
        }
        handed = (plan.graph.outputs[place] for place in leaves_of(plan.graph.structure))
        self.results = {node.serial for output in handed for node in self._of(output)}

    def groups(self, group: Group) -> tuple[int, ...]:
        found = (self._groups.get(node.serial) for node in self._read(group))
        return tuple(dict.fromkeys(number for number in found if number is not None))

    def inputs(self, group: Group) -> tuple[str, ...]:
        found = (node for node in self._read(group) if node.op is Op.INPUT)
        return tuple(dict.fromkeys(str(node.attrs.name) for node in found))

    def _read(self, group: Group) -> Iterator[Node]:
        for node in group.tensors:
            yield from self._of(node)

    def _of(self, node: Node) -> Iterator[Node]:
        """What stands behind views and items."""
        if node.serial in self._groups or not node.inputs:
            yield node
            return
        behind = behind_views(node)
        for each in (behind,) if behind is not node else node.inputs:
            yield from self._of(each)


def is_item(group: Group) -> bool:
    """Whether it is one result of a call that has several."""
    own = [node for node in group.nodes if node.kind is not Kind.SOURCE]
    return bool(own) and all(node.op is Op.ITEM for node in own)


def _row(group: Group, target: Target, part: Part, sources: _Sources) -> PlanRow:
    variant = part.variant
    sizes = tuple((fact.name, fact.example) for fact in variant.contract.symbols)
    ops = tuple(_op_name(node) for node in group.nodes if node.kind is not Kind.SOURCE)
    row = PlanRow(
        group.name,
        group.kind.value,
        ops,
        group.reason,
        variant=variant.state,
        lines=condensing_lines(group, part.plan),
        planned_name=group.planned_name,
        places=places_of(group, part.plan),
        module=module_of(group, part.plan, variant.submodule),
        loop=variant.loop,
        reads=sources.groups(group),
        inputs=sources.inputs(group),
        is_result=any(node.serial in sources.results for node in group.outputs),
    )
    if not group.fused:
        return row
    row = replace(row, replaced_copies=replaced_copies(group, target, sizes))
    if group.traffic is not None:
        moved = group.traffic
        row = replace(row, must_bytes=moved.must_bytes, moved_bytes=moved.moved_bytes)
    return replace(row, flops=evaluate(group.estimate.flops, dict(sizes)))


def _op_name(node: Node) -> str:
    return str(node.attrs.target) if node.op is Op.CALL else node.op.value
