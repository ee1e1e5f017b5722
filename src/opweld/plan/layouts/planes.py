"""Which convolutions of each channel by itself are made as they lie, their channels before their
space, where others get their channels last.

A kernel of planes moves its input and its result once. With channels last both are copied besides,
where what is before and behind does not have that order: such a stretch of the graph stays as it
is. Where there is another convolution in it, or something that goes along the channels, the order
of channels last is worth its copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...ir.attrs import CopyAttrs
from ...ir.copying import Copier
from ...ir.graph import Graph, Node, arena_of
from ...ir.operator import image_of
from ...ir.ops import Kind, Op
from ...ir.plan import Conditions
from ...ir.views import behind_views
from ...target import Target
from ..products.windows import is_convolution, is_ours_in_planes
from .asked import asked_channels_last, is_asked_channels_last

_IMAGE_RANK = 4


def kept_in_planes(
    graph: Graph,
    others: frozenset[int],
    following: frozenset[str],
    followed: frozenset[int],
    target: Target,
    conditions: Conditions,
) -> frozenset[int]:
    """The serials of the convolutions that kernels of ours make in planes, of stretches that would
    gain nothing by channels last. `others` are the convolutions that would get them; calls of
    `following` have the order of their operand; something is behind those `followed`.
    """
    planes = [
        node
        for node in graph.nodes()
        if is_convolution(node)
        and is_ours_in_planes(node, target, conditions, node.serial in followed)
    ]
    if not planes:
        return frozenset()
    stretches = _Stretches()
    serials = frozenset(node.serial for node in planes)
    ordered = others | serials
    for node in graph.nodes():
        for operand in _of_one_order(node, ordered, following):
            stretches.join(node.serial, operand.serial)
    elsewhere = {
        stretches.first(node.serial)
        for node in graph.nodes()
        if node.serial in others - serials or _goes_along_channels(node)
    }
    return frozenset(s for s in serials if stretches.first(s) not in elsewhere)


@dataclass(slots=True)
class _Stretches:
    """Sets of nodes, by their serials: each is known by one of them."""

    joined: dict[int, int] = field(default_factory=dict)

    def first(self, serial: int) -> int:
        while (before := self.joined.get(serial, serial)) != serial:
            serial = before
        return serial

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.first(one), self.first(other)))
        if low != high:
            self.joined[high] = low


def _of_one_order(node: Node, ordered: frozenset[int], following: frozenset[str]) -> Iterable[Node]:
    """The operands that have their axes in the order of the node's, if it has space at all."""
    if node.op is Op.CALL:
        has_order = node.serial in ordered or node.attrs.target in following
        operands = node.inputs[:1] if has_order or is_asked_channels_last(node) else ()
    elif node.kind is Kind.REDUCTION and set(range(2, node.type.rank)) <= {*node.attrs.axes}:
        operands = ()  # of space nothing is left
    else:
        operands = node.inputs
    return [each for each in operands if each.type.rank > 2 and each.kind is not Kind.SOURCE]


def _goes_along_channels(node: Node) -> bool:
    """Whether what it gives has its channels last, or is of the channels of each place."""
    if is_asked_channels_last(node):
        return True
    if node.op is Op.PERMUTE:
        dims = node.attrs.dims
        kept = 0  # what a pool puts first, its windows
        while kept < len(dims) and dims[kept] > kept:
            kept += 1
        return list(dims[kept:]) != sorted(dims[kept:])
    if node.kind in (Kind.REDUCTION, Kind.SCAN) and node.inputs[0].type.rank in (3, 4, 5):
        axes = node.attrs.axes if node.kind is Kind.REDUCTION else (node.attrs.axis,)
        return 1 in axes and not set(range(2, node.inputs[0].type.rank)) <= {*axes}
    return False


def with_formats(graph: Graph, target: Target, conditions: Conditions) -> Graph:
    """The graph whose images that convolutions in planes give, or what is computed of these element
    by element, have their channels last in memory where the first image among the inputs has, as in
    eager.
    """
    if image_of(graph) is None:
        return graph
    of_planes = _of_planes(graph, target, conditions) - asked_channels_last(graph)
    given = {
        memory.serial
        for memory in map(behind_views, graph.outputs)
        if memory.type.rank == _IMAGE_RANK and memory.serial in of_planes
    }
    if not given:
        return graph
    arena = arena_of(graph)

    def instead(node: Node, operands: tuple[Node, ...]) -> Node | None:
        if node.serial not in given:
            return None
        if node.op is Op.CALL:
            made = node if operands == node.inputs else arena.call(operands, node.attrs)
        else:
            made = arena.make(node.op, *operands, attrs=node.attrs)
        return arena.make(Op.CAST, made, attrs=CopyAttrs(made.type.dtype))

    return Copier(arena, instead, dict(graph.origins)).copied(graph)


def _of_planes(graph: Graph, target: Target, conditions: Conditions) -> set[int]:
    """The serials of such convolutions, and of what is computed of their elements."""
    found = set[int]()
    for node in graph.nodes():  # operands come before what reads them
        if is_convolution(node):
            is_found = is_ours_in_planes(node, target, conditions, followed=True)
        else:
            alike = (each for each in node.inputs if each.type.shape == node.type.shape)
            is_found = node.kind is Kind.POINTWISE and any(n.serial in found for n in alike)
        if is_found:
            found.add(node.serial)
    return found
