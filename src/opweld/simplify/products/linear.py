"""Products of a value with a matrix: x W^T + b, as PyTorch's calls write it.

The calls are those of `torch.nn.Linear` and of matrices on the right; W and b are any values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...ir.attrs import CallAttrs, Operand, PermuteAttrs
from ...ir.expr import Size, product
from ...ir.graph import Arena, Node
from ...ir.ops import Op
from ...ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Linear:
    """The call that gives x W^T + b. `weight` has its features, the columns of the result, along
    axis `features`; `bias` is a vector or None.
    """

    call: Node
    x: Node
    weight: Node
    features: int
    bias: Node | None

    @property
    def num_features(self) -> Size:
        return self.weight.type.shape[self.features]

    @property
    def depth(self) -> Size:
        """The terms of a sum."""
        return self.weight.type.shape[1 - self.features]

    @property
    def num_rows(self) -> Size:
        return product(self.x.type.shape[:-1])

    @property
    def flops(self) -> Size:
        return self.num_rows * self.num_features * self.depth * 2


def linear_of(node: Node) -> Linear | None:
    """What a call is; None where it is another call, or of operands of several types."""
    form = _FORMS.get(node.attrs.target) if node.op is Op.CALL else None
    found = form(node, _arguments(node)) if form is not None else None
    if found is None or found.weight.type.rank != 2 or not found.x.type.rank:
        return None
    operands = [found.x, found.weight, *([found.bias] if found.bias is not None else [])]
    # Autocast gives another type than that of the operands.
    if any(each.type.dtype is not node.type.dtype for each in operands):
        return None
    return found if node.type.dtype.is_float and _is_plain(found) else None


def _is_plain(found: Linear) -> bool:
    """Whether shapes are those of x W^T + b, nothing broadcast but the bias along rows."""
    shape = (*found.x.type.shape[:-1], found.num_features)
    bias = found.bias is None or found.bias.type.shape == (found.num_features,)
    return bias and found.call.type.shape == shape and found.x.type.shape[-1] == found.depth


def call_linear(arena: Arena, x: Node, weight: Node, bias: Node | None, reason: str) -> Node:
    """x W^T + b as a call; `weight` is [features, depth]."""
    operands = (x, weight) if bias is None else (x, weight, bias)
    result = TensorType(x.type.dtype, (*x.type.shape[:-1], weight.type.shape[0]))
    arguments = tuple(Operand(place) for place in range(len(operands)))
    attrs = CallAttrs("aten.linear.default", arguments, (), (result,), reason)
    return arena.call(operands, attrs)


def call_matmul(arena: Arena, left: Node, right: Node, reason: str) -> Node:
    """The product of two matrices, or of as many of each, as a call."""
    result = TensorType(left.type.dtype, (*left.type.shape[:-1], right.type.shape[-1]))
    places = (Operand(0), Operand(1))
    attrs = CallAttrs("aten.matmul.default", places, (), (result,), reason)
    return arena.call((left, right), attrs)


def swapped(node: Node, arena: Arena) -> Node:
    """The transposed of a matrix, or of each of several."""
    *front, rows, columns = range(node.type.rank)
    return arena.make(Op.PERMUTE, node, attrs=PermuteAttrs((*front, columns, rows)))


def _arguments(node: Node) -> list[Any]:
    return [
        node.inputs[value.index] if isinstance(value, Operand) else value
        for value in node.attrs.arguments
    ]


def _linear(node: Node, arguments: list[Any]) -> Linear | None:
    x, weight, *bias = arguments
    return Linear(node, x, weight, 0, bias[0] if bias else None)


def _matmul(node: Node, arguments: list[Any]) -> Linear | None:
    x, weight = arguments
    return Linear(node, x, weight, 1, None)


def _addmm(node: Node, arguments: list[Any]) -> Linear | None:
    bias, x, weight = arguments
    return Linear(node, x, weight, 1, bias) if not node.attrs.keywords else None


_FORMS: dict[str, Callable[[Node, list[Any]], Linear | None]] = {
    "aten.linear.default": _linear,
    "aten.matmul.default": _matmul,
    "aten.mm.default": _matmul,
    "aten.addmm.default": _addmm,
}
