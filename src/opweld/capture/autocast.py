"""What autocast does to a graph, and which of its casts are the library's own business."""

from __future__ import annotations

from opweld.ir.graph import Graph, Node
from opweld.ir.ops import Kind, Op
from opweld.ir.types import DType

from .specialise import rebuild

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


def autocast_acts(graph: Graph) -> bool:
    """Autocast casts the operands of library calls, of prelu, and of anything in a 16-bit type."""
    return any(
        node.kind is Kind.OPAQUE or node.op is Op.PRELU or node.type.dtype.is_half
        for node in graph.nodes()
    )


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
