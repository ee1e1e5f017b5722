"""What autocast does to a graph, and which of its casts are the library's own business."""

from __future__ import annotations

import torch

from opweld.ir.graph import Graph, Node
from opweld.ir.ops import Kind, Op
from opweld.ir.types import DType

from ..specialise import rebuild

AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# Operators that autocast runs in the 16-bit type on every device (ATen/autocast_mode.cpp).
_LOWERED = frozenset(
    f"aten.{name}.default"
    for name in (
        "linear",
        "matmul",
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "scaled_dot_product_attention",
    )
    + ("conv1d", "conv2d", "conv3d", "convolution")
)


def autocast_acts(graph: Graph, device_type: str) -> bool:
    """Whether autocast may change the graph: it casts the operands of some library calls, of prelu,
    and of anything in a 16-bit type.
    """
    return any(
        node.op is Op.PRELU
        or node.type.dtype.is_half
        or (node.kind is Kind.OPAQUE and not _left_alone(node, device_type))
        for node in graph.nodes()
    )


def autocast_lowers(graph: Graph) -> bool:
    """Whether autocast surely changes the graph: a call on float32 gives the 16-bit type."""
    return any(
        node.op is Op.CALL
        and node.attrs.target in _LOWERED
        and any(given.type.dtype is DType.F32 for given in node.inputs)
        for node in graph.nodes()
    )


def _left_alone(node: Node, device_type: str) -> bool:
    """A call of an operator for which autocast has no rule, nor for any that it is made of."""
    if node.op is Op.ITEM:
        return True  # one result of a call, which is looked at itself
    if node.op is not Op.CALL or not node.attrs.target.startswith("aten."):
        return False
    name = "aten::" + node.attrs.target.removeprefix("aten.").removesuffix(".default")
    keys = (f"Autocast{device_type.upper()}", "CompositeImplicitAutograd")
    found = torch._C._dispatch_has_kernel_for_dispatch_key
    lowered = node.attrs.target in _LOWERED
    return not lowered and not any(found(name, key) for key in keys)


def without_library_casts(graph: Graph, dtype: DType) -> Graph:
    """The graph without the casts of weights and inputs that a library call makes by itself.

    The call runs under the active autocast, which casts, and keeps the cast weight for
    the next call.
    """
    return rebuild(graph, {}, lambda node: _operands(node, dtype))


def _operands(node: Node, dtype: DType) -> tuple[Node, ...]:
    if node.op is not Op.CALL or node.attrs.target not in _LOWERED:
        return node.inputs
    return tuple(n.inputs[0] if _is_autocasts(n, dtype) else n for n in node.inputs)


def _is_autocasts(node: Node, dtype: DType) -> bool:
    if node.op is not Op.CAST or node.type.dtype is not dtype:
        return False
    source = node.inputs[0]
    return source.op in (Op.INPUT, Op.WEIGHT) and source.type.dtype is DType.F32
