"""Views of memory: which move data, what a view shows, and copies of it."""

from __future__ import annotations

from .graph import Graph, Node
from .ops import Kind, Op

MOVING_VIEWS = frozenset((Op.CAT, Op.PAD, Op.FLIP, Op.GATHER))


def is_free_view(node: Node) -> bool:
    return node.kind is Kind.VIEW and node.op not in MOVING_VIEWS


def behind_views(node: Node) -> Node:
    """The node whose memory `node` shows."""
    while is_free_view(node):
        node = node.inputs[0]
    return node


def is_copy(node: Node) -> bool:
    """Whether a node is its operand, in memory of its own: in the order of its axes."""
    return node.op is Op.CAST and node.inputs[0].type.dtype is node.type.dtype


def is_moved(node: Node) -> bool:
    """Whether a node is a copy of what lies otherwise: of views that do more than name axes."""
    if not is_copy(node):
        return False
    view = node.inputs[0]
    while view.op is Op.RESHAPE:
        view = view.inputs[0]
    return is_free_view(view)


def memory_of(node: Node, graph: Graph) -> Node:
    """What a result shows: behind its views, or what a pool gives, which is behind none."""
    while is_free_view(node) and not _is_pooled(node, graph):
        node = node.inputs[0]
    return node


def _is_pooled(node: Node, graph: Graph) -> bool:
    """Whether a reshape leaves out the axes of windows; what it shows is no result besides."""
    made = node.inputs[0]
    is_first = node.op is Op.RESHAPE and made.kind is not Kind.VIEW and made not in graph.outputs
    return bool(is_first and made.type.rank > node.type.rank)


def views_above_memory(node: Node, graph: Graph) -> list[tuple[Node, Node]]:
    """The views that lie above the memory of a result, with that."""
    memory, found = memory_of(node, graph), list[tuple[Node, Node]]()
    while node is not memory:
        found.append((node, memory))
        node = node.inputs[0]
    return found
