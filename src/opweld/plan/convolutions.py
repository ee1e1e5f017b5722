"""Convolutions of the library with what PyTorch does beside them left to our kernels.

On a GPU PyTorch adds the bias of a convolution by a kernel of its own, which reads and writes the
whole result; a kernel of ours that reads the result anyway adds it in passing. (Convolution of 64
into 128 channels, 3x3, with a tail, batch 32, 56x56: 0.041 of 0.188 ms; H100, 2026-11-26.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..ir.attrs import CallAttrs, CastAttrs, Operand, ShapeAttrs
from ..ir.copying import Copier, give_origin
from ..ir.graph import Arena, Graph, Node, Origin, arena_of
from ..ir.ops import Op
from ..ir.plan import Conditions
from ..target import Target
from .products.windows import is_convolution, is_ours
from .uses import CALCULATING, uses_of

CONVOLUTIONS = frozenset(
    f"aten.{name}"
    for name in (
        "conv1d.default",
        "conv1d.padding",
        "conv2d.default",
        "conv2d.padding",
        "conv3d.default",
        "conv3d.padding",
        "conv_transpose1d.default",
        "conv_transpose2d.input",
        "conv_transpose3d.input",
        "convolution.default",
    )
)
_BIAS = 2  # its place among the arguments of all of them; an exported call has no tensor by keyword


def with_explicit_biases(graph: Graph, target: Target, conditions: Conditions) -> Graph:
    """The graph in which the bias of a convolution that a kernel reads, or makes, is a node of its
    own, an addition; the same graph for a CPU, whose library adds it for nothing.
    """
    if target.language != "cuda" or not any(map(_bias_of, graph.nodes())):
        return graph
    readers = uses_of(graph).readers
    read = {s for s, nodes in readers.items() if any(node.kind in CALCULATING for node in nodes)}
    biases = (
        (node.serial, bias)
        for node in graph.nodes()
        if (bias := _bias_of(node)) is not None
        and (node.serial in read or _is_ours(node, target, conditions))
    )
    chosen = dict(biases)
    origins = dict(graph.origins)
    added = _BiasesAdded(arena_of(graph), chosen, origins)
    return Copier(added.arena, added.instead, origins).copied(graph)


def _is_ours(node: Node, target: Target, conditions: Conditions) -> bool:
    """Whether a kernel makes it, and adds the bias."""
    if conditions.library_convolutions or not is_convolution(node):
        return False
    return is_ours(node, target, conditions, followed=True)


def _bias_of(node: Node) -> Node | None:
    """The bias of a convolution."""
    if node.op is not Op.CALL or node.attrs.target not in CONVOLUTIONS:
        return None
    bias = node.attrs.arguments[_BIAS] if len(node.attrs.arguments) > _BIAS else None
    return node.inputs[bias.index] if isinstance(bias, Operand) else None


@dataclass(frozen=True, slots=True)
class _BiasesAdded:
    """`chosen` has the biases by the serials of the convolutions that are to be without."""

    arena: Arena
    chosen: Mapping[int, Node]
    origins: dict[int, Origin]

    def instead(self, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if node.serial not in self.chosen:
            return None
        bias = operands[node.inputs.index(self.chosen[node.serial])]
        call = self.arena.call(*_without_bias(node, operands))
        if bias.type.dtype is not call.type.dtype:  # as autocast does
            bias = self.arena.make(Op.CAST, bias, attrs=CastAttrs(call.type.dtype))
        shape = (*bias.type.shape, *(1,) * (call.type.rank - _channel_axis(call) - 1))
        bias = self.arena.make(Op.RESHAPE, bias, attrs=ShapeAttrs(shape))
        added = self.arena.make(Op.ADD, call, bias)
        give_origin(self.origins, node, call, added)
        return added


def _channel_axis(call: Node) -> int:
    """That of the result: an input may come without a batch."""
    weight = call.inputs[call.attrs.arguments[1].index]
    return 1 if call.type.rank == weight.type.rank else 0


def _without_bias(node: Node, operands: tuple[Node, ...]) -> tuple[tuple[Node, ...], CallAttrs]:
    """Operands and attributes of the call whose bias is None."""
    given = (None if place == _BIAS else each for place, each in enumerate(node.attrs.arguments))
    arguments, kept = list[Any](), dict[int, Operand]()
    for each in given:
        if isinstance(each, Operand):
            each = kept.setdefault(each.index, Operand(len(kept)))
        arguments.append(each)
    attrs = replace(node.attrs, arguments=tuple(arguments))
    return tuple(operands[index] for index in kept), attrs
