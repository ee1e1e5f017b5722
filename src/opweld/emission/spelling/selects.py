"""`x[:, 7]`: a slice of one element, and the reshape that drops its axis, as one view."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...ir.graph import Graph, Node, consumers
from ...ir.ops import Op
from ...ir.plan import Group, GroupKind
from .ops import number


def select_of(node: Node) -> tuple[str, str, tuple[Node, ...]] | None:
    """Name, text and operand of the view."""
    part = node.inputs[0] if node.op is Op.RESHAPE else None
    if part is None or part.op is not Op.SLICE or part.attrs.length != 1:
        return None
    axis, shape = part.attrs.dim, part.type.shape
    if node.type.shape != (*shape[:axis], *shape[axis + 1 :]):
        return None
    return "select", f"{{x}}[{':, ' * axis}{number(part.attrs.start)}]", part.inputs


def selects_joined(graph: Graph, groups: Iterable[Group]) -> list[Group]:
    """The groups with both nodes in one, where nothing else reads the slice."""
    users, returned = consumers(graph.nodes()), {node.serial for node in graph.outputs}
    waiting: dict[int, Group] = {}
    found: list[Group] = []
    for group in groups:
        (node, *others) = group.nodes
        part = waiting.pop(node.inputs[0].serial, None) if select_of(node) and not others else None
        if part is not None:
            group = replace(group, nodes=(*part.nodes, node), inputs=part.inputs)
        readers = users[node.serial]
        is_part = group.kind is GroupKind.VIEW and node.op is Op.SLICE and len(readers) == 1
        if is_part and select_of(readers[0]) and node.serial not in returned:
            waiting[node.serial] = group
        else:
            found.append(group)
    return found
