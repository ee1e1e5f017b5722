"""Which tensors lie with their channels last because the user's forward asks for it."""

from __future__ import annotations

from ...ir.attrs import TorchLiteral
from ...ir.graph import Graph, Node
from ...ir.ops import Kind, Op
from ..products.windows import is_convolution


def is_asked_channels_last(node: Node) -> bool:
    """Whether PyTorch gives a tensor its channels last, because the user asks for it."""
    asked = node.attrs.keywords if node.op is Op.CALL else ()
    return ("memory_format", TorchLiteral("torch.channels_last")) in asked


def asked_channels_last(graph: Graph) -> frozenset[int]:
    """The serials of what eager computes in the order of channels last that the user asks for."""
    found: set[int] = set()
    for node in graph.nodes():
        whole = [each for each in node.inputs if each.type.shape == node.type.shape]
        if node.kind is Kind.POINTWISE and whole:
            keeps = all(each.serial in found for each in whole)
        elif is_convolution(node):
            keeps = node.inputs[0].serial in found
        else:
            keeps = is_asked_channels_last(node)
        found |= {node.serial} if keeps else set()
    return frozenset(found)
