"""What rows of reductions are made of: axes, folds over them, means and squares.

A fold keeps its axes with size 1; `returned` drops them as the caller asked. Sums and products of
16-bit types are taken in float32 and rounded once, as eager takes them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opweld.ir.attrs import ReduceAttrs
from opweld.ir.expr import Size, product
from opweld.ir.graph import Node
from opweld.ir.ops import Kind, Op
from opweld.ir.types import DType, TensorType

from ..build import Builder
from ..call import Call, NotFused

Axes = tuple[int, ...]
# The argument `reduction` of losses; 2 is the sum.
NONE, MEAN = 0, 1

_REPEATED = (Op.EXPAND, Op.CONST, Op.IOTA)


def axes_of(call: Call, operand: Node, name: str = "dim") -> Axes:
    """The axes that the call names, ascending; all where it names none."""
    rank = operand.type.rank
    value = call.values.get(name)
    if value is None:
        return tuple(range(rank))
    named = [value] if isinstance(value, int) else list(value)
    if not named:
        return _axes_of_none(call, operand)
    return tuple(sorted({axis % rank for axis in named})) if rank else ()


def _axes_of_none(call: Call, operand: Node) -> Axes:
    """An empty list means all axes to most operators, and none to any and all."""
    fake = call.fake[0] if isinstance(call.fake, tuple | list) else call.fake
    kept = result_type(call, fake).shape == operand.type.shape
    return () if kept else tuple(range(operand.type.rank))


def last_axes(operand: Node, count: int) -> Axes:
    return tuple(range(operand.type.rank - count, operand.type.rank))


def require_elements(call: Call, name: str, axes: Axes) -> None:
    """Raises NotFused where a row of the argument may be empty: it has no largest element."""
    shape = call.fakes[name].shape
    if not all(statically_known_true(shape[axis] > 0) for axis in axes):
        raise NotFused(f"{call.name} of what may have no elements is left to the library")


def fold(build: Builder, op: Op, x: Node, axes: Axes, first: bool = False) -> Node:
    """`x` condensed along the axes, which stay with size 1; along none it is as it is.

    With `first`, the gradient of an extreme goes to its first place instead of to all.
    """
    if any(x.type.shape[axis] == 0 for axis in axes):
        raise NotFused("a reduction of no elements is left to the library")
    if x.op in _REPEATED:
        raise NotFused("a reduction of repeated elements is the library's")
    return build.op(op, x, attrs=ReduceAttrs(axes, first)) if axes else x


def count(x: Node, axes: Axes) -> Size:
    """How many elements a row has."""
    return product(x.type.shape[axis] for axis in axes)


def mean(build: Builder, x: Node, axes: Axes) -> Node:
    total = fold(build, Op.SUM, x, axes)
    return build.op(Op.DIV, total, build.const(count(x, axes), x.type.dtype))


def squared(build: Builder, x: Node) -> Node:
    return build.op(Op.MUL, x, x)


def centred(build: Builder, x: Node, axes: Axes) -> tuple[Node, Node]:
    """The differences to the mean, and the mean.

    The mean is rounded once: a rounded sum by the number of elements is off by an ulp, and constant
    rows would differ from it by that.
    """
    middle = mean(build, x, axes) if _has_room(x, axes) else fold(build, Op.MEAN, x, axes)
    return build.op(Op.SUB, x, middle), middle


# Significant bits of an element.
_DIGITS = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}
# What a number of elements that is not known is taken for.
_MANY_ELEMS = 2**24


def _has_room(x: Node, axes: Axes) -> bool:
    """Whether x is of a wider type than its elements had, and so much that sums of equal ones are
    exact.
    """
    number, x = count(x, axes), _behind_views(x)
    narrow = _behind_views(x.inputs[0]) if x.op is Op.CAST else x
    # What is computed of 16-bit values is not rounded to them before it is added up.
    computed_wide = narrow.type.dtype.is_half and narrow.kind is Kind.POINTWISE
    if computed_wide or not narrow.type.dtype.is_float:
        return False
    room = _DIGITS[x.type.dtype] - _DIGITS[narrow.type.dtype]
    return (number if isinstance(number, int) else _MANY_ELEMS) <= 2**room


def _behind_views(x: Node) -> Node:
    while x.kind is Kind.VIEW and len(x.inputs) == 1:
        x = x.inputs[0]
    return x


def standardised(build: Builder, x: Node, axes: Axes, eps: float) -> tuple[Node, Node, Node]:
    """(x - mean) / sqrt(variance + eps), the mean and the factor; x is float32 or float64."""
    difference, middle = centred(build, x, axes)
    variance = mean(build, squared(build, difference), axes)
    spread = build.op(Op.ADD, variance, build.const(eps, x.type.dtype))
    factor = build.op(Op.RSQRT, spread)
    return build.op(Op.MUL, difference, factor), middle, factor


def zero_kept(build: Builder, op: Op, x: Node, *operands: Node) -> Node:
    """op(x, ...), but 0 with gradient 0 where x is 0: the derivative there is infinite."""
    zero = build.const(0, x.type.dtype)
    is_zero = build.op(Op.EQ, x, zero)
    elsewhere = build.op(Op.WHERE, is_zero, build.const(1, x.type.dtype), x)
    return build.op(Op.WHERE, is_zero, zero, build.op(op, elsewhere, *operands))


def computed(build: Builder, x: Node, dtype: DType) -> Node:
    """`x` as a tensor of `dtype`, in the type that kernels calculate with."""
    return build.cast(build.cast(x, dtype), dtype.compute)


def float_operand(call: Call, name: str) -> Node:
    """An argument of a float type, in the type that kernels calculate with."""
    node = call.node(name)
    if not node.type.dtype.is_float:
        raise NotFused(f"{call.name} of integers is left to the library")
    return call.build.cast(node, node.type.dtype.compute)


def returned(call: Call, node: Node, fake: Any = None) -> Node:
    """`node` in the type and the shape of the result (of `fake`, where there are several)."""
    call.values.get("keepdim")  # seen in the shape
    type = call.type if fake is None else result_type(call, fake)
    return call.build.reshape(call.build.cast(node, type.dtype), type.shape)


def result_type(call: Call, fake: torch.Tensor) -> TensorType:
    type = call.symbols.type(fake)
    if type is None:
        raise NotFused(f"elements of type {fake.dtype} are not fused")
    return type
