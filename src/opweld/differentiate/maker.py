"""Short ways to write the nodes that gradients are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..ir.attrs import (
    CallAttrs,
    CastAttrs,
    Operand,
    PermuteAttrs,
    ReduceAttrs,
    ShapeAttrs,
)
from ..ir.expr import Size, product
from ..ir.graph import Arena, Node
from ..ir.ops import Op
from ..ir.types import DType, TensorType


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes nodes in an arena; numbers among the operands become constants of the others' type."""

    arena: Arena

    def __call__(self, op: Op, *operands: Node | float) -> Node:
        dtype = next(each.type.dtype for each in reversed(operands) if isinstance(each, Node))
        return self.arena.make(op, *(self._node(each, dtype) for each in operands))

    def _node(self, value: Node | float, dtype: DType) -> Node:
        return value if isinstance(value, Node) else self.arena.const(value, dtype)

    def add(self, x: Node | float, y: Node | float) -> Node:
        return self(Op.ADD, x, y)

    def sub(self, x: Node | float, y: Node | float) -> Node:
        return self(Op.SUB, x, y)

    def mul(self, x: Node | float, y: Node | float) -> Node:
        return self(Op.MUL, x, y)

    def div(self, x: Node | float, y: Node | float) -> Node:
        return self(Op.DIV, x, y)

    def square(self, x: Node) -> Node:
        return self(Op.MUL, x, x)

    def normal(self, x: Node) -> Node:
        """The density of the normal distribution."""
        power = self(Op.EXP, self.mul(self.square(x), -0.5))
        return self.mul(power, 1.0 / math.sqrt(2.0 * math.pi))

    def where(self, test: Node, x: Node | float, y: Node | float) -> Node:
        dtype = next(each.type.dtype for each in (x, y) if isinstance(each, Node))
        return self.arena.make(Op.WHERE, test, self._node(x, dtype), self._node(y, dtype))

    def reduced(self, op: Op, x: Node, axes: tuple[int, ...]) -> Node:
        """Its axes stay, of size 1; without axes `x` itself."""
        return self.arena.make(op, x, attrs=ReduceAttrs(axes)) if axes else x

    def summed(self, x: Node, axes: tuple[int, ...]) -> Node:
        """The sum along axes, which stay. What is the same along them is multiplied by it once:
        sums of which factors differ are then one.
        """
        if not axes:
            return x
        factors, sign = _factors(x)
        same = [each for each in factors if _is_same(each, x.type.shape, axes)]
        varying = [each for each in factors if each not in same]
        if not same or not varying or any(each.type.rank != x.type.rank for each in varying):
            return self.reduced(Op.SUM, x, axes)
        first, *others = sorted(varying, key=lambda each: each.serial)
        for each in others:
            first = self.mul(first, each)
        if any(first.type.shape[axis] != x.type.shape[axis] for axis in axes):
            return self.reduced(Op.SUM, x, axes)
        total = self.reduced(Op.SUM, first, axes)
        for each in same:
            total = self.mul(total, each)
        return self(Op.NEG, total) if sign < 0 else total

    def permuted(self, x: Node, dims: tuple[int, ...]) -> Node:
        return self.arena.make(Op.PERMUTE, x, attrs=PermuteAttrs(dims))

    def transposed(self, x: Node) -> Node:
        """With its last two axes exchanged."""
        rank = x.type.rank
        return self.permuted(x, (*range(rank - 2), rank - 1, rank - 2))

    def reshaped(self, x: Node, shape: tuple[Size, ...]) -> Node:
        if x.type.shape == shape:
            return x
        return self.arena.make(Op.RESHAPE, x, attrs=ShapeAttrs(shape))

    def expanded(self, x: Node, shape: tuple[Size, ...]) -> Node:
        if x.type.shape == shape:
            return x
        return self.arena.make(Op.EXPAND, x, attrs=ShapeAttrs(shape))

    def cast(self, x: Node, dtype: DType) -> Node:
        return self.arena.make(Op.CAST, x, attrs=CastAttrs(dtype))

    def rows(self, x: Node) -> Node:
        """A matrix whose rows are those of `x`."""
        shape = x.type.shape
        return self.reshaped(x, (product(shape[:-1]), shape[-1]))

    def summed_to(self, x: Node, shape: tuple[Size, ...]) -> Node:
        """The sum over all axes along which a tensor of `shape` is broadcast to that of `x`."""
        own = x.type.shape
        lead = len(own) - len(shape)
        axes = tuple(
            axis
            for axis, size in enumerate(own)
            if axis < lead or (shape[axis - lead] == 1 and size != 1)
        )
        return self.reshaped(self.summed(x, axes), shape)

    def matmul(self, x: Node, y: Node) -> Node:
        """The product of two tensors with the same batch axes."""
        shape = (*x.type.shape[:-1], y.type.shape[-1])
        kind = TensorType(x.type.dtype, shape)
        return self.called("aten.matmul.default", (x, y), kind)

    def called(self, target: str, operands: tuple[Node, ...], kind: TensorType) -> Node:
        """A call of PyTorch's with one result."""
        arguments = tuple(Operand(place) for place in range(len(operands)))
        attrs = CallAttrs(target, arguments, (), (kind,), "a gradient")
        return self.arena.call(operands, attrs)


# A square of a square, and so on, has more factors than anyone would wait for.
_MOST_FACTORS = 64


def _factors(x: Node) -> tuple[list[Node], int]:
    """What a product is made of, and its sign. Of very many factors some stay together."""
    left, factors, sign = [x], list[Node](), 1
    while left:
        node = left.pop()
        if node.op is Op.NEG:
            left.append(node.inputs[0])
            sign = -sign
        elif node.op is Op.MUL and len(left) + len(factors) + 1 < _MOST_FACTORS:
            left.extend(reversed(node.inputs))
        else:
            factors.append(node)
    return factors, sign


def _is_same(x: Node, shape: tuple[Size, ...], axes: tuple[int, ...]) -> bool:
    """Whether a factor of a tensor of `shape` is the same along axes."""
    lead = len(shape) - x.type.rank
    return all(axis < lead or x.type.shape[axis - lead] == 1 for axis in axes)
