"""Who reads a value, seen through the free views of it, and which values the caller keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..ir.graph import Graph, Node
from ..ir.kernels.attention import Attention
from ..ir.kernels.convolution import Convolution
from ..ir.kernels.product import Product
from ..ir.ops import Kind, Op
from ..ir.views import MOVING_VIEWS, behind_views, is_free_view

CALCULATING = (Kind.POINTWISE, Kind.REDUCTION, Kind.SCAN)


def computes(node: Node) -> bool:
    """Whether the node writes new memory when it stands alone; free views and sources do not."""
    return node.kind in CALCULATING or node.op in MOVING_VIEWS


def index_of(pick: Node) -> Node:
    """Where the index of a GATHER is in memory."""
    return behind_views(pick.inputs[1])


Made = Product | Attention | Convolution
"""What a kernel of ours computes in place of a call."""


@dataclass(frozen=True, slots=True)
class Uses:
    """Facts of one graph, by serial.

    `nodes` are in topological order and `place` is a node's position there. `readers` are the nodes
    that read a value, free views of it followed to their readers. `returned` values, or free views
    of them, are outputs of the graph. `shown` free views are needed as tensors: by the caller, by a
    PyTorch call, by a product's kernel, which sees through some views, or by another such view.
    `drawn_before` is the call that draws random numbers before the one of that serial does: it must
    run first. `products` has the calls whose matrix product, or attention, a kernel of ours makes;
    what attention computes on the way is left out everywhere. `paddings` nothing reads but
    convolutions of ours, which see through them: nobody computes these.
    """

    nodes: tuple[Node, ...]
    place: dict[int, int]
    users: dict[int, tuple[Node, ...]]
    readers: dict[int, tuple[Node, ...]]
    returned: frozenset[int]
    shown: frozenset[int]
    drawn_before: dict[int, Node]
    products: Mapping[int, Made]
    paddings: frozenset[int] = frozenset()

    def leaves_memory(self, node: Node) -> bool:
        """Whether the value is wanted in memory by the caller or by a PyTorch call."""
        called = (reader.kind is Kind.OPAQUE for reader in self.readers[node.serial])
        return node.serial in self.returned or any(called)

    def results(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Those of `nodes` whose value is read outside them."""
        inside = {node.serial for node in nodes}
        return tuple(
            node
            for node in nodes
            if node.serial in self.returned
            or any(reader.serial not in inside for reader in self.readers[node.serial])
        )


def reads_of(product: Made) -> tuple[Node, ...]:
    """The tensors that a product reads, behind the views before them."""
    if isinstance(product, Attention | Convolution):
        return product.reads
    read = [product.a, product.b]
    if product.added is not None:
        source = behind_views(product.added)
        read += [source] if source.op not in (Op.CONST, Op.IOTA) else []
    return tuple(dict.fromkeys(read))


def uses_of(graph: Graph, products: Mapping[int, Made] | None = None) -> Uses:
    """The facts of a graph in which a kernel makes each product of `products`, by the call's
    serial.
    """
    products = products or {}
    made_inside = {s for each in products.values() for s in _inner(each)}
    nodes, drawn_before = _in_order(
        tuple(node for node in graph.nodes() if node.serial not in made_inside)
    )
    paddings = _paddings_inside(graph, products)
    users = _users(nodes, products, paddings)
    readers: dict[int, tuple[Node, ...]] = {}
    returned = {node.serial for node in graph.outputs}
    read = {operand.serial for made in products.values() for operand in reads_of(made)}
    shown: set[int] = set()
    for node in reversed(nodes):
        found: dict[Node, None] = {}
        for user in users[node.serial]:
            found.update(dict.fromkeys(readers[user.serial] if is_free_view(user) else (user,)))
        readers[node.serial] = tuple(found)
        views = [user for user in users[node.serial] if is_free_view(user)]
        calls = (user for user in users[node.serial] if user.serial not in products)
        given = node.serial in read or any(call.kind is Kind.OPAQUE for call in calls)
        if node.serial in returned or given or any(view.serial in shown for view in views):
            shown.add(node.serial)
        if any(view.serial in returned for view in views):
            returned.add(node.serial)
    place = {node.serial: index for index, node in enumerate(nodes)}
    kept, seen = frozenset(returned), frozenset(shown)
    return Uses(nodes, place, users, readers, kept, seen, drawn_before, products, paddings)


def _paddings_inside(graph: Graph, products: Mapping[int, Made]) -> frozenset[int]:
    """The paddings that only convolutions of ours would read."""
    nodes = graph.nodes()
    if not any(node.op is Op.PAD for node in nodes):
        return frozenset()
    reached: set[int] = set()
    waiting = list(graph.outputs)
    while waiting:
        node = waiting.pop()
        if node.serial not in reached:
            reached.add(node.serial)
            made = products.get(node.serial)
            waiting += made.reads if isinstance(made, Convolution) else node.inputs
    return frozenset(n.serial for n in nodes if n.op is Op.PAD and n.serial not in reached)


def _inner(made: Made) -> frozenset[int]:
    return made.inner if isinstance(made, Attention) else frozenset()


def _users(
    nodes: tuple[Node, ...], products: Mapping[int, Made], paddings: frozenset[int]
) -> dict[int, tuple[Node, ...]]:
    """For each serial, the nodes that read it; attention reads no more than what is in memory, and
    convolutions what is behind paddings.
    """
    users: dict[int, list[Node]] = {node.serial: [] for node in nodes}
    for node in nodes:
        made = products.get(node.serial)
        read = made.reads if isinstance(made, Attention) else node.inputs
        if isinstance(made, Convolution):
            read = (*read, *made.reads)
        for operand in dict.fromkeys(read if node.serial not in paddings else ()):
            if operand.serial in users:
                users[operand.serial].append(node)
    return {serial: tuple(readers) for serial, readers in users.items()}


def _in_order(nodes: tuple[Node, ...]) -> tuple[tuple[Node, ...], dict[int, Node]]:
    """The nodes with calls that draw random numbers in the program's order."""
    drawing = sorted((n for n in nodes if _draws(n)), key=lambda node: node.serial)
    if len(drawing) < 2:
        return nodes, {}
    # A node is made after its operands, so serials are a topological order, and the program's.
    ordered = tuple(sorted(nodes, key=lambda node: node.serial))
    return ordered, {later.serial: first for first, later in pairwise(drawing)}


def _draws(node: Node) -> bool:
    return node.op is Op.CALL and node.attrs.draws
