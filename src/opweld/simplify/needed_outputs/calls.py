"""PyTorch calls that can make a part of their result: products and attention."""

from __future__ import annotations

from dataclasses import replace

from ...ir.attrs import Operand
from ...ir.expr import Size, product
from ...ir.graph import Arena, Node
from ...ir.types import TensorType
from ..products.linear import linear_of
from .demands import Demand, broadcast_part
from .regions import Region, shape_of, whole

_MATMULS = ("aten.matmul.default", "aten.bmm.default")
_ATTENTION = "aten.scaled_dot_product_attention.default"


def call_demand(node: Node) -> Demand | None:
    """What a call needs for a part of its result; None where it makes all of it."""
    if linear_of(node) is not None:
        return Demand(_of_linear)
    if node.attrs.target in _MATMULS and _is_matrices(node):
        return Demand(_of_matmul)
    if node.attrs.target == _ATTENTION and _is_plain_attention(node):
        return Demand(_of_attention, _all_of_last)
    return None


def call_in_part(node: Node, operands: tuple[Node, ...], region: Region, arena: Arena) -> Node:
    """The call on parts of its operands, which makes this region of its result."""
    result = TensorType(node.type.dtype, shape_of(region))
    return arena.call(operands, replace(node.attrs, results=(result,)))


def flops_of(node: Node, shape: tuple[Size, ...]) -> Size:
    """The operations of a product or of attention with a result of this shape."""
    linear = linear_of(node)
    if linear is not None:
        return product(shape) * linear.depth * 2
    if node.attrs.target == _ATTENTION:
        query, key = (each.type.shape for each in node.inputs[:2])
        return product(shape[:-1]) * key[-2] * (query[-1] + shape[-1]) * 2
    return product(shape) * node.inputs[0].type.shape[-1] * 2


def _of_linear(node: Node, region: Region) -> tuple[Region, ...]:
    found = linear_of(node)
    assert found is not None, "it was one"
    *rows, features = region
    weight = list(whole(found.weight.type.shape))
    weight[found.features] = features
    regions = {
        found.x.serial: (*rows, (0, found.depth)),
        found.weight.serial: tuple(weight),
    }
    if found.bias is not None:
        regions[found.bias.serial] = (features,)
    return tuple(regions[each.serial] for each in node.inputs)


def _is_matrices(node: Node) -> bool:
    """Whether both operands have matrices of their own, and are no one tensor."""
    given = node.attrs.arguments == (Operand(0), Operand(1)) and not node.attrs.keywords
    ranks = [each.type.rank for each in node.inputs]
    return given and len(ranks) == 2 and ranks[0] == ranks[1] == node.type.rank >= 2


def _of_matmul(node: Node, region: Region) -> tuple[Region, ...]:
    *batch, rows, columns = region
    left, right = (each.type.shape for each in node.inputs)
    of_left, of_right = (broadcast_part(s[:-2], tuple(batch)) for s in (left, right))
    return (*of_left, rows, (0, left[-1])), (*of_right, (0, right[-2]), columns)


def _is_plain_attention(node: Node) -> bool:
    """Whether each query meets all keys, of as many heads, and nothing is dropped."""
    three = (Operand(0), Operand(1), Operand(2))
    shapes = [each.type.shape for each in node.inputs]
    if len(shapes) != 3 or any(len(shape) != node.type.rank for shape in shapes):
        return False
    defaults = node.attrs.arguments[:3] == three and not any(node.attrs.arguments[3:])
    scale_only = {name for name, value in node.attrs.keywords if value} <= {"scale"}
    return defaults and scale_only and all(s[:-2] == node.type.shape[:-2] for s in shapes)


def _all_of_last(node: Node, region: Region) -> Region:
    return (*region[:-1], (0, node.type.shape[-1]))


def _of_attention(node: Node, region: Region) -> tuple[Region, ...]:
    query, *others = (each.type.shape for each in node.inputs)
    batch = region[:-2]
    of_others = ((*batch, (0, shape[-2]), (0, shape[-1])) for shape in others)
    return (*batch, region[-2], (0, query[-1])), *of_others
