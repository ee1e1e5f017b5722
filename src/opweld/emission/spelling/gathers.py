"""Indexed reads in PyTorch: by the call that the user wrote where it shows, else by one for all."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph import Node
from ...ir.ops import Op
from ...ir.types import DType
from .ops import number, sizes

_FUNCTIONAL = "torch.nn.functional"


def gather_of(node: Node) -> tuple[str, str, tuple[Node, Node]] | None:
    """Name, text and operands of the call that reads whole slices of an axis: {x} stands for what
    is read and {c} for the numbers, behind the reshapes that set them beside each other.
    """
    if node.op is not Op.GATHER or node.attrs.ignored is not None:
        return None
    x, c = (each.inputs[0] if each.op is Op.RESHAPE else each for each in node.inputs)
    rank, attrs = max(c.type.rank, 1), node.attrs
    axis = attrs.dim - rank + 1
    if axis < 0 or c.type.dtype is DType.U8 or not _are_beside(node, x, c, axis, rank):
        return None
    if attrs.wraps:
        return "picked", f"{{x}}[{':, ' * axis}{{c}}]{_shaped(node, x, c, axis)}", (x, c)
    if x.type.rank == 2 and axis == 0 and c.type.rank:
        padding = "" if attrs.padding is None else f", padding_idx={attrs.padding}"
        return "embedding", f"{_FUNCTIONAL}.embedding({{c}}, {{x}}{padding})", (x, c)
    if c.type.rank == 1:
        return "selected", f"torch.index_select({{x}}, {axis}, {{c}})", (x, c)
    return None


def _are_beside(node: Node, x: Node, c: Node, axis: int, rank: int) -> bool:
    source, index = (operand.type.shape for operand in node.inputs)
    shape = x.type.shape
    numbers = c.type.shape or (1,)
    spread = (*shape[:axis], *(1,) * (rank - 1), *shape[axis:])
    return source == spread and index == ((1,) * axis + numbers + (1,) * (len(shape) - axis - 1))


def _shaped(node: Node, x: Node, c: Node, axis: int) -> str:
    """One number drops the axis."""
    return "" if c.type.rank else f".unsqueeze({axis})"


def gather_text(node: Node, name: Callable[[Node], str]) -> str:
    """The expression for any indexed read; `name` gives the texts of its operands."""
    x, index = (name(operand) for operand in node.inputs)
    attrs, (source, numbers) = node.attrs, (operand.type for operand in node.inputs)
    if attrs.ignored is not None:
        index = f"{index}.masked_fill({index} == {attrs.ignored}, 0)"
    if attrs.padding is not None:
        rows = f"{x}.flatten(0, {attrs.dim}).flatten(1)"
        read = f"{_FUNCTIONAL}.embedding({index}.flatten(), {rows}, padding_idx={attrs.padding})"
        return f"{read}.reshape({sizes(node.type.shape)})"
    if attrs.wraps:
        index = f"({index} % {number(source.shape[attrs.dim])})"
    if numbers.dtype is not DType.I64:
        index = f"{index}.long()"
    others = [k for k in range(source.rank) if k != attrs.dim]
    if all(source.shape[k] == numbers.shape[k] for k in others):
        return f"torch.gather({x}, {attrs.dim}, {index})"
    return f"torch.take_along_dim({x}, {index}, {attrs.dim})"
