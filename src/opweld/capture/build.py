"""Nodes without ceremony: views that change nothing vanish, scalars become constants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opweld.ir.attrs import (
    NO_ATTRS,
    CastAttrs,
    CatAttrs,
    FlipAttrs,
    PadAttrs,
    PermuteAttrs,
    ShapeAttrs,
    SliceAttrs,
    WindowAttrs,
)
from opweld.ir.expr import Size
from opweld.ir.graph import Arena, Node
from opweld.ir.ops import Op
from opweld.ir.types import DType

Shape = tuple[Size, ...]


@dataclass(slots=True)
class Builder:
    """Makes nodes in one arena."""

    arena: Arena = field(default_factory=Arena)

    def op(self, op: Op, *nodes: Node, attrs: Any = NO_ATTRS) -> Node:
        return self.arena.make(op, *nodes, attrs=attrs)

    def const(self, value: Any, dtype: DType) -> Node:
        return self.arena.const(_as_element(value, dtype), dtype)

    def cast(self, node: Node, dtype: DType) -> Node:
        if node.type.dtype is dtype:
            return node
        if node.op is Op.CONST and isinstance(node.attrs.value, int | float) and not dtype.is_half:
            return self.const(node.attrs.value, dtype)
        return self.op(Op.CAST, node, attrs=CastAttrs(dtype))

    def reshape(self, node: Node, shape: Shape) -> Node:
        if node.type.shape == shape:
            return node
        return self.op(Op.RESHAPE, node, attrs=ShapeAttrs(shape))

    def expand(self, node: Node, shape: Shape) -> Node:
        if node.type.shape == shape:
            return node
        return self.op(Op.EXPAND, node, attrs=ShapeAttrs(shape))

    def permute(self, node: Node, dims: tuple[int, ...]) -> Node:
        if dims == tuple(range(len(dims))):
            return node
        return self.op(Op.PERMUTE, node, attrs=PermuteAttrs(dims))

    def slice(self, node: Node, dim: int, start: Size, length: Size, step: int = 1) -> Node:
        if start == 0 and step == 1 and length == node.type.shape[dim]:
            return node
        start = 0 if length == 0 else start
        return self.op(Op.SLICE, node, attrs=SliceAttrs(dim, start, step, length))

    def flip(self, node: Node, dims: tuple[int, ...]) -> Node:
        return self.op(Op.FLIP, node, attrs=FlipAttrs(dims)) if dims else node

    def cat(self, nodes: list[Node], dim: int) -> Node:
        if len(nodes) == 1:
            return nodes[0]
        return self.op(Op.CAT, *nodes, attrs=CatAttrs(dim))

    def pad(self, node: Node, before: Shape, after: Shape, value: Any) -> Node:
        if not any(size != 0 for size in (*before, *after)):
            return node
        return self.op(Op.PAD, node, attrs=PadAttrs(before, after, value))

    def window(
        self, node: Node, dim: int, count: Size, step: int, width: int, dilation: int = 1
    ) -> Node:
        return self.op(Op.WINDOW, node, attrs=WindowAttrs(dim, count, step, width, dilation))


def _as_element(value: Any, dtype: DType) -> Any:
    """A Python number as an element: 2 is 2.0 in a float tensor, True is 1 in an integer one, -2 is
    254 in one of uint8.
    """
    if not isinstance(value, int | float):
        return value
    if dtype is DType.BOOL:
        return bool(value)
    if dtype.is_float:
        return float(value)
    values = 1 << 8 * dtype.itemsize_bytes
    least = 0 if dtype is DType.U8 else -values // 2
    return (int(value) - least) % values + least
