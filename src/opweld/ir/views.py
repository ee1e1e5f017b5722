"""Views of memory: which move data, what a view shows, and copies of it."""

from __future__ import annotations

from .graph import Node
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
