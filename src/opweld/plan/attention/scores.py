"""How scores of attention are computed: at which places, from what in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...ir.expr import Size, product, symbol, symbols_of
from ...ir.graph import Graph, Node, consumers
from ...ir.index import Coords, align, through_view
from ...ir.kernels.attention import INNER, MOST_DEPTH, Attention, Seen, is_even
from ...ir.ops import Kind, Op
from ...ir.plan import Sizes, number_at
from ...ir.views import is_free_view

MOST_PLACES = 48
"""The most places at which a score's operations are evaluated."""
LEAST_QUERIES = 16
"""A tile of fewer rows is mostly empty, and splitting keys and values costs more than it saves."""

# Rows and keys of a tile of ours, which multiplies them all whether or not they exist. Microseconds
# of the library's kernel and of ours, float32, as many rows as keys, heads of 64 values (H200,
# 2026-11-30, torch 2.11): 1024 heads of 32 keys 42 and 76, 768 of 50 keys 37 and 60, 128 of 64
# keys 10 and 11, of 128 keys 23 and 16, 384 of 197 keys 199 and 108. Of 128 values: 64 heads of
# 128 keys 16 and 21, of 256 keys 54 and 31. Fewer heads were not timed.
TILE, LEAST_SHARE, SHORT_DEPTH, LEAST_TIMED_HEADS = 128, 0.3, 64, 64


class NoAttention(Exception):
    """Why a call is no attention that a kernel of ours makes: one sentence without its end."""


@dataclass(frozen=True, slots=True)
class Users:
    """Who reads each node of a graph; nobody, one that is not in it."""

    of: Mapping[int, tuple[Node, ...]]
    outputs: tuple[Node, ...]

    def all_inside(self, node: Node, inside: set[int]) -> bool:
        """Whether nobody else needs the node."""
        kept = any(node is output for output in self.outputs)
        return not kept and all(u.serial in inside for u in self.of.get(node.serial, ()))


def is_short(found: Attention, sizes: Sizes) -> bool:
    """Whether the library's kernel is faster, for tiles would be mostly empty, or hold all keys."""
    batches = product(size for _, size in found.batch)
    if not symbols_of(batches) <= dict(sizes).keys():
        return False  # how many heads there are is not known
    heads = number_at(batches, sizes)
    queries, keys = number_at(found.queries, sizes), number_at(found.keys, sizes)
    shared = number_at(found.k.node.type.num_elems, sizes) < heads * keys * found.depth
    if heads < LEAST_TIMED_HEADS or shared or queries * keys == 0:
        return False
    room = (-(-queries // TILE) * TILE) * (-(-keys // TILE) * TILE)
    if queries * keys < LEAST_SHARE * room:
        return True
    return found.depth > SHORT_DEPTH and queries <= TILE and keys <= TILE


def users_in(graph: Graph) -> Users:
    return Users(consumers(graph.nodes()), graph.outputs)


@dataclass(slots=True)
class Walk:
    """The places at which a score's operations, and what they read, are evaluated; by serial."""

    bounds: dict[str, Size]
    coords: dict[int, set[Coords]] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)
    readers: dict[int, set[int]] = field(default_factory=dict)

    def visit(self, scores: Seen) -> None:
        """Raises NoAttention where there are too many."""
        waiting = [scores]
        while waiting:
            seen = waiting.pop()
            known = self.coords.setdefault(seen.node.serial, set())
            if seen.coords in known:
                continue
            known.add(seen.coords)
            self.nodes[seen.node.serial] = seen.node
            if sum(map(len, self.coords.values())) > 4 * MOST_PLACES:
                raise NoAttention("its scores take too many operations")
            for operand in _operands_of(seen, self.bounds):
                self.readers.setdefault(operand.node.serial, set()).add(seen.node.serial)
                waiting.append(operand)

    def knows(self, node: Node, name: str) -> bool:
        """Whether the places of a node differ along a variable."""
        return any(knows(Seen(node, coords), name) for coords in self.coords[node.serial])


def knows(seen: Seen, name: str) -> bool:
    """Whether a variable says where a value is read."""
    return any(name in symbols_of(each) for each in seen.coords)


def _operands_of(seen: Seen, bounds: dict[str, Size]) -> list[Seen]:
    node, coords = seen.node, seen.coords
    if node.kind is Kind.POINTWISE:
        return [Seen(operand, align(coords, operand.type.shape)) for operand in node.inputs]
    if is_free_view(node):
        return [Seen(node.inputs[0], through_view(node, coords, bounds))]
    return []


def divided(
    walk: Walk, scores: Node, users: Users, inside: set[int]
) -> tuple[set[int], tuple[Node, ...]]:
    """Serials of what is computed for each score, as nobody else needs it, and what is read from
    memory. `inside` is what reads the scores. Raises NoAttention.
    """
    inner: set[int] = set()
    views: set[int] = set()
    stored: set[int] = set()  # what others see through a view is in memory
    operands: list[Node] = []
    for node in sorted(walk.nodes.values(), key=lambda node: -node.serial):
        reached = node is scores or walk.readers[node.serial] & (inner | views)
        if not reached or node.op in (Op.CONST, Op.IOTA):
            continue
        free = node.serial not in stored and users.all_inside(node, inside | inner | views)
        if is_free_view(node):
            views.add(node.serial)
            stored |= set() if free else {node.inputs[0].serial}
        elif free and node.kind is Kind.POINTWISE:
            inner.add(node.serial)
        else:
            operands.append(node)
    if sum(len(walk.coords[serial]) for serial in inner) > MOST_PLACES:
        raise NoAttention("its scores take too many operations")
    return inner, tuple(reversed(operands))


def behind(seen: Seen, bounds: dict[str, Size]) -> Seen:
    """What is behind all free views."""
    node, coords = seen.node, seen.coords
    while is_free_view(node):
        node, coords = node.inputs[0], through_view(node, coords, bounds)
    return Seen(node, coords)


def in_memory(seen: Seen, bounds: dict[str, Size], row: str) -> Seen:
    """The tensor as far behind views as its rows, and what they hold, are evenly spaced."""
    found, node, coords = seen, seen.node, seen.coords
    bounds = bounds | {INNER: width(seen)}
    while is_free_view(node):
        node, coords = node.inputs[0], through_view(node, coords, bounds)
        if is_even(coords, (row, INNER)):
            found = Seen(node, coords)
    return found


def width(seen: Seen) -> int:
    """How many values a row has. Raises NoAttention where they do not fit a tile."""
    along = zip(seen.node.type.shape, seen.coords, strict=True)
    size = next((size for size, at in along if at == symbol(INNER)), 1)
    if not isinstance(size, int) or not 0 < size <= MOST_DEPTH:
        raise NoAttention(f"its rows are of {size} values, and up to {MOST_DEPTH} fit a tile")
    return size
