"""What is computed again rather than stored: elements that kernels fold while other kernels need
what they are computed from.

Rows may be cut in pieces, or be too long (see two_kernels.py): then what needs both an element and
a fold is another kernel's. Or elements are folded along rows and along columns, as the gradients of
a norm and of its weight are. Between the kernels stands what the elements are computed from: a cast
of 16-bit values, scores with a mask, a normalised row. If both compute it from what is in memory,
less moves than if one stored it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
# What is stored is written once and read twice, where what it is computed from is read once more;
# elements of a last fold are written and read once.
_MOST_READ, _MOST_READ_LAST = 3, 2
# What is so many times less than the elements, a number a row, stays in caches.
_FEW = 32

_Key = tuple[int, tuple[int, ...]]


def rematerialized(
    graph: Graph, parallelism: Parallelism, with_epilogue: Collection[int] = ()
) -> Graph:
    """The graph in which the folds of such rows have nodes of their own, down to what
    is in memory, where others read them too. The kernels of the calls `with_epilogue`, by serial,
    compute what follows them, and store it.
    """
    state = _Elements(graph, consumers(graph.nodes()), parallelism, with_epilogue)
    chosen = {
        (fold.inputs[0].serial, fold.attrs.axes): own
        for fold in state.folds
        if (own := state.of(fold)) and (state.walk_apart(fold, own) or state.cross(fold, own))
    }
    if not chosen:
        return graph
    return _Folds(chosen).apart(graph)


@dataclass(slots=True)
class _Elements:
    """What the elements of the folds of a graph are computed from; `users` are the readers of each
    node.
    """

    graph: Graph
    users: Mapping[int, tuple[Node, ...]]
    parallelism: Parallelism
    with_epilogue: Collection[int]
    folds: tuple[Node, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.folds = tuple(node for node in self.graph.nodes() if node.kind is Kind.REDUCTION)

    def of(self, fold: Node) -> tuple[Node, ...]:
        """What is computed between memory and the operand of a fold, in order; nothing where that
        is computed behind a product.
        """
        found: dict[int, Node] = {}
        waiting = [fold.inputs[0]]
        while waiting:
            node = waiting.pop()
            read = self.users[node.serial]
            is_stored = node in self.graph.outputs or any(u.kind is Kind.OPAQUE for u in read)
            if node.serial in found or is_stored:
                continue
            if node.kind is Kind.POINTWISE or is_free_view(node):
                found[node.serial] = node
                waiting += node.inputs
        nodes = tuple(found[serial] for serial in sorted(found))
        if not any(node.kind is Kind.POINTWISE for node in nodes):
            return ()
        operands = {operand.serial for node in nodes for operand in node.inputs}
        return nodes if operands.isdisjoint(self.with_epilogue) else ()

    def walk_apart(self, fold: Node, own: tuple[Node, ...]) -> bool:
        """Whether what needs both an element and the fold is another kernel's, which computes
        elements, too.
        """
        beside = self.users[fold.inputs[0].serial]
        if kept_by_all(fold, beside, self.parallelism):
            return False
        if not walk_apart(fold, beside, self.parallelism):
            return False
        return self._is_shared(own) and self._is_cheap(own, fold.inputs[0], _MOST_READ)

    def cross(self, fold: Node, own: tuple[Node, ...]) -> bool:
        """Whether values that the elements of a fold are computed from are folded along other axes,
        too, and elements need nothing of this fold, so that it can be another kernel's.
        """
        operand = fold.inputs[0]
        if not all(user.kind is Kind.REDUCTION for user in self.users[operand.serial]):
            return False
        whole = {node.serial for node in own if node.type.shape == operand.type.shape}
        others = (other for other in self.folds if other.attrs.axes != fold.attrs.axes)
        if not any(whole & {node.serial for node in self.of(other)} for other in others):
            return False
        return self._is_last(fold) and self._is_cheap(own, operand, _MOST_READ_LAST)

    def _is_last(self, fold: Node) -> bool:
        """Whether no element of its rows is computed with the result."""
        seen: set[int] = set()
        waiting = list(self.users[fold.serial])
        while waiting:
            node = waiting.pop()
            if node.type.shape == fold.inputs[0].type.shape:
                return False
            if node.serial not in seen and (node.kind is Kind.POINTWISE or is_free_view(node)):
                waiting += self.users[node.serial]
            seen.add(node.serial)
        return True

    def _is_shared(self, own: tuple[Node, ...]) -> bool:
        """Whether other nodes than folds of them read any."""
        inside = {node.serial for node in own} | {fold.serial for fold in self.folds}
        return any(user.serial not in inside for node in own for user in self.users[node.serial])

    def _is_cheap(self, own: tuple[Node, ...], operand: Node, most_read: int) -> bool:
        """Whether the elements take few operations, and `most_read` times their bytes at most."""
        inside = {node.serial for node in own}
        read = dict.fromkeys(o for n in own for o in n.inputs if o.serial not in inside)
        own_bytes = self.parallelism.at(operand.type.size_bytes)
        sizes = [self.parallelism.at(n.type.size_bytes) for n in read if n.op is not Op.CONST]
        read_bytes = sum(size for size in sizes if size * _FEW > own_bytes)
        flops = sum(OP_FLOPS.get(node.op, 1) for node in own if node.kind is Kind.POINTWISE)
        return flops <= _MOST_FLOPS and read_bytes <= most_read * own_bytes


@dataclass(slots=True)
class _Folds:
    """`chosen` has, by the serial of the operand and the axes of folds, what is copied for them."""

    chosen: dict[_Key, tuple[Node, ...]]
    copier: Copier = field(init=False)
    copies: dict[_Key, Node] = field(default_factory=dict)

    def apart(self, graph: Graph) -> Graph:
        self.copier = Copier(arena_of(graph), self._on_copy, dict(graph.origins))
        return self.copier.copied(graph)

    def _on_copy(self, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if node.kind is not Kind.REDUCTION:
            return None
        key = node.inputs[0].serial, node.attrs.axes
        if key not in self.chosen:
            return None
        return self.copier.arena.make(node.op, self._copy_of(key), attrs=node.attrs)

    def _copy_of(self, key: _Key) -> Node:
        if key not in self.copies:
            own: dict[int, Node] = {}
            for node in self.chosen[key]:
                inputs = (own.get(o.serial, self.copier.made[o.serial]) for o in node.inputs)
                copy = self.copier.arena.again(node.op, *inputs, attrs=node.attrs)
                own[node.serial] = self.copier.known_as(node, copy)
            self.copies[key] = own[key[0]]
        return self.copies[key]
