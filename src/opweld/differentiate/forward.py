"""A fused group in an arena of its own, where its gradients are made."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.copying import made_alike
from ..ir.graph import Arena, Node, Origin, reached
from ..ir.ops import Op
from ..ir.plan import Group


@dataclass(frozen=True, slots=True)
class Forward:
    """A group in an arena of its own: `operands` are inputs there; `original` has the group's node
    by the serial of its copy.
    """

    arena: Arena
    operands: tuple[Node, ...]
    results: tuple[Node, ...]
    origins: dict[int, Origin]
    original: dict[int, Node]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return reached(self.results, {node.serial for node in self.operands})

    def originals(self, nodes: tuple[Node, ...], arena: Arena) -> tuple[Node, ...]:
        """What is computed here, as nodes of the group, or on these in their arena."""
        made = dict(self.original)
        for node in reached(nodes, made):
            made[node.serial] = made_alike(
                arena, node, tuple(made[each.serial] for each in node.inputs)
            )
        return tuple(made[node.serial] for node in nodes)


def apart(group: Group, names: list[str], origins: dict[int, Origin]) -> Forward:
    """A copy of a group whose operands are inputs of these names, with the user's lines of its
    nodes.
    """
    arena = Arena()
    made: dict[int, Node] = {}
    for node, name in zip(group.inputs, names, strict=True):
        made[node.serial] = arena.source(Op.INPUT, name, name, node.type)
    operands = tuple(made.values())
    inside = reached(group.outputs, made)
    for node in inside:
        inputs = tuple(made[each.serial] for each in node.inputs)
        made[node.serial] = made_alike(arena, node, inputs)
    by_copy = {made[node.serial].serial: node for node in (*group.inputs, *inside)}
    known = {made[s].serial: origins[s] for s in made if s in origins}
    results = tuple(made[node.serial] for node in group.outputs)
    return Forward(arena, operands, results, known, by_copy)
