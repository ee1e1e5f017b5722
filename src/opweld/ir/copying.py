"""Copies of graphs in which some nodes are others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from .graph import Arena, Graph, Node, Origin
from .ops import Op
from .types import TensorType

Operands = tuple[Node, ...]


@dataclass(slots=True)
class Copier:
    """`instead` gives the node that stands for one of the graph on its new operands, or None where
    that is the same operation. `made` has the new nodes by the serials of the old ones; nodes keep
    where they come from in `origins`.
    """

    arena: Arena
    instead: Callable[[Node, Operands], Node | None]
    origins: dict[int, Origin]
    made: dict[int, Node] = field(default_factory=dict)
    calls_moved: bool = False

    def copied(self, graph: Graph) -> Graph:
        # Serials are a topological order, and that of the calls.
        for node in sorted(graph.nodes(), key=lambda node: node.serial):
            operands = tuple(self.made[operand.serial] for operand in node.inputs)
            new = self.instead(node, operands) or self._on(node, operands)
            # Later calls must have later serials.
            self.calls_moved |= node.op is Op.CALL and new is not node
            self.made[node.serial] = self.known_as(node, new)
        outputs = tuple(self.made[node.serial] for node in graph.outputs)
        result = replace(graph, outputs=outputs, origins=())
        serials = sorted(node.serial for node in result.nodes())
        return replace(
            result, origins=tuple((s, self.origins[s]) for s in serials if s in self.origins)
        )

    def _on(self, node: Node, operands: Operands) -> Node:
        """The same operation on the new operands."""
        if node.op is Op.CALL:
            moved = self.calls_moved or operands != node.inputs
            return self.arena.call(operands, node.attrs) if moved else node
        if operands == node.inputs:
            return node
        return made_alike(self.arena, node, operands)

    def known_as(self, old: Node, new: Node) -> Node:
        """The new node, of the old one's origin where it has none."""
        if old.serial in self.origins:
            self.origins.setdefault(new.serial, self.origins[old.serial])
        return new


def give_origin(origins: dict[int, Origin], old: Node, first: Node, last: Node) -> None:
    """Nodes that were made in the place of an old one, in a row, are of its origin."""
    if old.serial in origins:
        places = range(first.serial, last.serial + 1)
        origins.update((serial, origins[old.serial]) for serial in places)


def made_alike(
    arena: Arena, node: Node, inputs: Operands, attrs: Any = None, type: TensorType | None = None
) -> Node:
    """The same operation in another arena, with other attributes or of another type maybe."""
    attrs = node.attrs if attrs is None else attrs
    type = node.type if type is None else type
    if node.op in (Op.INPUT, Op.WEIGHT):
        return arena.source(node.op, attrs.name, attrs.access, type)
    if node.op is Op.CONST:
        return arena.const(attrs.value, type.dtype)
    if node.op is Op.IOTA:
        return arena.iota(attrs, type.dtype)
    if node.op is Op.CALL:
        return arena.call(inputs, attrs)
    if node.op is Op.ITEM:
        return arena.item(inputs[0], attrs.index, type)
    return arena.make(node.op, *inputs, attrs=attrs)
