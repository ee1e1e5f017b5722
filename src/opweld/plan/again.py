"""What is computed again rather than stored: the elements of rows that are cut in pieces.

Such rows are folded by one kernel, and what needs both an element and a fold is another's. Between
the two stands what the elements are computed from: a cast of 16-bit values, scores with a mask. If
both kernels compute it from what is in memory, less moves than if a third one stored it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..ir.graph import Arena, Graph, Node, arena_of, consumers
from ..ir.ops import Kind, Op
from .cost import OP_FLOPS
from .rows import Parallelism
from .uses import is_free_view

# Instructions an element beside which reading and writing one still count.
_MOST_FLOPS = 64
# What is stored is written once and read twice, where what it is computed from is read once more.
_MOST_READ = 3


def computed_again(graph: Graph, parallelism: Parallelism) -> Graph:
    """The graph in which the folds of cut rows have nodes of their own, down to what is in memory,
    where others read them too.
    """
    users = consumers(graph.nodes())
    folds = [node for node in graph.nodes() if node.kind is Kind.REDUCTION]
    chosen: dict[int, tuple[Node, ...]] = {}
    for fold in folds:
        operand = fold.inputs[0]
        if parallelism.needs_pieces(operand.type.shape, fold.attrs.axes):
            own = _elements_of(operand, users, graph.outputs)
            if own and _is_shared(own, users, folds) and _is_cheap(own, operand, parallelism):
                chosen[operand.serial] = own
    if not chosen:
        return graph
    return _Copier(arena_of(graph), chosen, dict(graph.origins)).copied(graph)


def _elements_of(
    operand: Node, users: Mapping[int, tuple[Node, ...]], outputs: tuple[Node, ...]
) -> tuple[Node, ...]:
    """What is computed between memory and the operand, in order."""
    found: dict[int, Node] = {}
    waiting = [operand]
    while waiting:
        node = waiting.pop()
        is_stored = node in outputs or any(u.kind is Kind.OPAQUE for u in users[node.serial])
        if node.serial in found or is_stored:
            continue
        if node.kind is Kind.POINTWISE or is_free_view(node):
            found[node.serial] = node
            waiting += node.inputs
    nodes = tuple(found[serial] for serial in sorted(found))
    return nodes if any(node.kind is Kind.POINTWISE for node in nodes) else ()


def _is_shared(
    own: tuple[Node, ...], users: Mapping[int, tuple[Node, ...]], folds: list[Node]
) -> bool:
    """Whether other nodes than folds of them read any."""
    inside = {node.serial for node in own} | {fold.serial for fold in folds}
    return any(user.serial not in inside for node in own for user in users[node.serial])


def _is_cheap(own: tuple[Node, ...], operand: Node, parallelism: Parallelism) -> bool:
    inside = {node.serial for node in own}
    read = dict.fromkeys(o for n in own for o in n.inputs if o.serial not in inside)
    read_bytes = sum(parallelism.at(n.type.size_bytes) for n in read if n.op is not Op.CONST)
    flops = sum(OP_FLOPS.get(node.op, 1) for node in own if node.kind is Kind.POINTWISE)
    most_bytes = _MOST_READ * parallelism.at(operand.type.size_bytes)
    return flops <= _MOST_FLOPS and read_bytes <= most_bytes


@dataclass(slots=True)
class _Copier:
    """`chosen` has, by the serial of a fold's operand, what is copied for it."""

    arena: Arena
    chosen: dict[int, tuple[Node, ...]]
    origins: dict[int, tuple[str, str]]
    made: dict[int, Node] = field(default_factory=dict)
    copies: dict[int, Node] = field(default_factory=dict)
    calls_moved: bool = False

    def copied(self, graph: Graph) -> Graph:
        # Serials are a topological order, and that of the calls.
        for node in sorted(graph.nodes(), key=lambda node: node.serial):
            self.made[node.serial] = self._known_as(node, self._on(node))
        outputs = tuple(self.made[node.serial] for node in graph.outputs)
        result = replace(graph, outputs=outputs, origins=())
        serials = sorted(node.serial for node in result.nodes())
        return replace(
            result, origins=tuple((s, self.origins[s]) for s in serials if s in self.origins)
        )

    def _on(self, node: Node) -> Node:
        """The same operation on the new operands."""
        operands = tuple(self.made[operand.serial] for operand in node.inputs)
        if node.kind is Kind.REDUCTION and node.inputs[0].serial in self.chosen:
            operands = (self._copy_of(node.inputs[0]),)
        if node.op is Op.CALL:
            # Later calls must have later serials.
            self.calls_moved |= operands != node.inputs
            return self.arena.call(operands, node.attrs) if self.calls_moved else node
        if operands == node.inputs:
            return node
        if node.op is Op.ITEM:
            return self.arena.item(operands[0], node.attrs.index, node.type)
        return self.arena.make(node.op, *operands, attrs=node.attrs)

    def _copy_of(self, operand: Node) -> Node:
        if operand.serial not in self.copies:
            own: dict[int, Node] = {}
            for node in self.chosen[operand.serial]:
                inputs = (own.get(o.serial, self.made[o.serial]) for o in node.inputs)
                copy = self.arena.again(node.op, *inputs, attrs=node.attrs)
                own[node.serial] = self._known_as(node, copy)
            self.copies[operand.serial] = own[operand.serial]
        return self.copies[operand.serial]

    def _known_as(self, old: Node, new: Node) -> Node:
        if old.serial in self.origins:
            self.origins[new.serial] = self.origins[old.serial]
        return new
