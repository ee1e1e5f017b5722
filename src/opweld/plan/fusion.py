"""Which computing nodes share a kernel.

A cluster is a set of computing nodes whose results all have one shape, the iteration space,
together with the nodes that only feed them through views and broadcasts and are computed where they
are read. Merging is greedy along edges, in topological order, and never makes the graph of clusters
cyclic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.expr import Size
from ..ir.graph import Graph, Node, consumers
from ..ir.ops import Kind, Op

MAX_CLUSTER_NODES = 96  # more live values than this spill registers, whatever the order
MOVING_VIEWS = frozenset((Op.CAT, Op.PAD, Op.FLIP))


def computes(node: Node) -> bool:
    """Whether the node writes new memory when it stands alone; free views and sources do not."""
    return node.kind is Kind.POINTWISE or node.op in MOVING_VIEWS


def is_free_view(node: Node) -> bool:
    return node.kind is Kind.VIEW and node.op not in MOVING_VIEWS


def behind_views(node: Node) -> Node:
    """The node whose memory `node` shows."""
    while is_free_view(node):
        node = node.inputs[0]
    return node


@dataclass(slots=True)
class Cluster:
    """`space` is the shape of every result; `nodes` keeps topological order."""

    number: int
    space: tuple[Size, ...]
    nodes: list[Node]


@dataclass(slots=True)
class _Fusion:
    graph: Graph
    nodes: tuple[Node, ...]
    users: dict[int, tuple[Node, ...]]
    member: dict[int, Cluster] = field(default_factory=dict)
    output_serials: frozenset[int] = frozenset()

    def readers(self, node: Node) -> list[Node]:
        """Nodes that read this node's value, seen through free views."""
        found: list[Node] = []
        for user in self.users[node.serial]:
            found.extend(self.readers(user) if is_free_view(user) else [user])
        return found

    def leaves_memory(self, node: Node) -> bool:
        """Whether the value is wanted in memory by the caller or by a PyTorch call."""
        if self._is_output(node):
            return True
        return any(reader.kind is Kind.OPAQUE for reader in self.readers(node))

    def _is_output(self, node: Node) -> bool:
        if node.serial in self.output_serials:
            return True
        return any(self._is_output(u) for u in self.users[node.serial] if is_free_view(u))


def fuse(graph: Graph) -> tuple[Cluster, ...]:
    """Clusters of computing nodes; every computing node is in exactly one."""
    nodes = graph.nodes()
    state = _Fusion(graph, nodes, consumers(nodes))
    state.output_serials = frozenset(node.serial for node in graph.outputs)
    computing = [node for node in nodes if computes(node)]
    for number, node in enumerate(computing):
        state.member[node.serial] = Cluster(number, node.type.shape, [node])
    for node in computing:
        for operand in node.inputs:
            _merge_edge(state, behind_views(operand), node, direct=not is_free_view(operand))
    _merge_siblings(state, computing)
    distinct = {cluster.number: cluster for cluster in state.member.values()}
    return tuple(distinct[number] for number in sorted(distinct))


def _merge_edge(state: _Fusion, producer: Node, reader: Node, direct: bool) -> None:
    if not computes(producer):
        return
    upper, lower = state.member[producer.serial], state.member[reader.serial]
    if upper is lower or len(upper.nodes) + len(lower.nodes) > MAX_CLUSTER_NODES:
        return
    same_space = (
        direct and upper.space == lower.space and reader.op not in (Op.CAT, Op.PAD, Op.FLIP)
    )
    if not same_space and not _only_feeds(state, upper, lower):
        return  # its results would have another shape than the iteration space
    if not _makes_cycle(state, upper, lower):
        _merge(state, upper, lower, lower.space)


def _only_feeds(state: _Fusion, upper: Cluster, lower: Cluster) -> bool:
    """Whether nothing of `upper` is read outside the two: then it can be computed in place."""
    inside = {node.serial for node in (*upper.nodes, *lower.nodes)}
    return all(
        not state.leaves_memory(node) and all(r.serial in inside for r in state.readers(node))
        for node in upper.nodes
    )


def _merge_siblings(state: _Fusion, computing: list[Node]) -> None:
    """Clusters of one iteration space that read the same full-size value read it once together."""
    for node in computing:
        for operand in node.inputs:
            if operand.type.shape != node.type.shape or operand.op is Op.CONST:
                continue
            for sibling in state.users[operand.serial]:
                if computes(sibling):
                    _merge_sibling(state, node, sibling)


def _merge_sibling(state: _Fusion, node: Node, sibling: Node) -> None:
    left, right = state.member[node.serial], state.member[sibling.serial]
    too_large = len(left.nodes) + len(right.nodes) > MAX_CLUSTER_NODES
    if left is right or left.space != right.space or too_large:
        return
    if not _makes_cycle(state, left, right):
        _merge(state, left, right, left.space)


def _merge(state: _Fusion, left: Cluster, right: Cluster, space: tuple[Size, ...]) -> None:
    order = {node.serial: position for position, node in enumerate(state.nodes)}
    nodes = sorted((*left.nodes, *right.nodes), key=lambda node: order[node.serial])
    merged = Cluster(min(left.number, right.number), space, nodes)
    for node in nodes:
        state.member[node.serial] = merged


def _makes_cycle(state: _Fusion, left: Cluster, right: Cluster) -> bool:
    """Whether a path leads out of the union of the two clusters and back into it."""
    inside = {node.serial for node in (*left.nodes, *right.nodes)}
    frontier = [
        u for serial in sorted(inside) for u in state.users[serial] if u.serial not in inside
    ]
    seen: set[int] = set()
    while frontier:
        node = frontier.pop()
        if node.serial in inside:
            return True
        if node.serial in seen:
            continue
        # A cluster runs as one: reaching one of its nodes reaches all of its results.
        together = state.member[node.serial].nodes if node.serial in state.member else [node]
        for one in together:
            seen.add(one.serial)
            frontier.extend(u for u in state.users[one.serial] if u.serial not in seen)
    return False
