"""What is computed again rather than stored: the elements of rows that one kernel folds while what
needs both an element and a fold is another's, as they are cut in pieces or too long (see apart.py).

Between the two kernels stands what the elements are computed from: a cast of 16-bit values, scores
with a mask. If both compute it from what is in memory, less moves than if a third one stored it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..ir.copying import Copier
from ..ir.graph import Graph, Node, arena_of, consumers
from ..ir.ops import Kind, Op
from ..ir.views import is_free_view
from .cost import OP_FLOPS
from .rows import Parallelism
from .two_kernels import kept_by_all, walk_apart

# Instructions an element beside which reading and writing one still count.
_MOST_FLOPS = 64
# What is stored is written once and read twice, where what it is computed from is read once more.
_MOST_READ = 3


def computed_again(graph: Graph, parallelism: Parallelism) -> Graph:
    """The graph in which the folds of such rows have nodes of their own, down to what is in memory,
    where others read them too.
    """
    users = consumers(graph.nodes())
    folds = [node for node in graph.nodes() if node.kind is Kind.REDUCTION]
    chosen: dict[int, tuple[Node, ...]] = {}
    for fold in folds:
        operand = fold.inputs[0]
        beside = users[operand.serial]
        by_all = kept_by_all(fold, beside, parallelism)
        if not by_all and walk_apart(fold, beside, parallelism):
            own = _elements_of(operand, users, graph.outputs)
            if own and _is_shared(own, users, folds) and _is_cheap(own, operand, parallelism):
                chosen[operand.serial] = own
    if not chosen:
        return graph
    return _Folds(chosen).apart(graph)


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
class _Folds:
    """`chosen` has, by the serial of a fold's operand, what is copied for it."""

    chosen: dict[int, tuple[Node, ...]]
    copier: Copier = field(init=False)
    copies: dict[int, Node] = field(default_factory=dict)

    def apart(self, graph: Graph) -> Graph:
        self.copier = Copier(arena_of(graph), self._on_copy, dict(graph.origins))
        return self.copier.copied(graph)

    def _on_copy(self, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if node.kind is not Kind.REDUCTION or node.inputs[0].serial not in self.chosen:
            return None
        return self.copier.arena.make(node.op, self._copy_of(node.inputs[0]), attrs=node.attrs)

    def _copy_of(self, operand: Node) -> Node:
        if operand.serial not in self.copies:
            own: dict[int, Node] = {}
            for node in self.chosen[operand.serial]:
                inputs = (own.get(o.serial, self.copier.made[o.serial]) for o in node.inputs)
                copy = self.copier.arena.again(node.op, *inputs, attrs=node.attrs)
                own[node.serial] = self.copier.known_as(node, copy)
            self.copies[operand.serial] = own[operand.serial]
        return self.copies[operand.serial]
