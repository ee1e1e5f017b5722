"""Parts of tensors: of each axis some neighbouring elements."""

from __future__ import annotations

from ...ir.attrs import SliceAttrs
from ...ir.expr import Size
from ...ir.graph import Arena, Node
from ...ir.ops import Op

Span = tuple[Size, Size]
"""The first element along an axis, and how many there are."""
Region = tuple[Span, ...]


def whole(shape: tuple[Size, ...]) -> Region:
    return tuple((0, size) for size in shape)


def shape_of(region: Region) -> tuple[Size, ...]:
    return tuple(length for _, length in region)


def hull(left: Region, right: Region, shape: tuple[Size, ...]) -> Region:
    """The smallest region of a tensor of this shape that is known to hold both."""
    spans = zip(left, right, shape, strict=True)
    return tuple(one if one == other else _between(one, other, size) for one, other, size in spans)


def _between(one: Span, other: Span, size: Size) -> Span:
    (first, length), (second, width) = one, other
    if not (isinstance(first, int) and isinstance(second, int)):
        return 0, size
    if not (isinstance(length, int) and isinstance(width, int)):
        return 0, size
    start = min(first, second)
    return start, max(first + length, second + width) - start


def worthwhile(region: Region, shape: tuple[Size, ...]) -> Region:
    """With all of each axis of which more than half is in the region: a view that leaves gaps is
    slower to read than what it leaves out takes to compute.
    """
    pairs = zip(region, shape, strict=True)
    return tuple(span if _is_small(span[1], size) else (0, size) for span, size in pairs)


_SMALL = 4  # of an axis of any size


def _is_small(length: Size, size: Size) -> bool:
    if not isinstance(length, int):
        return False
    return 2 * length <= size if isinstance(size, int) else length <= _SMALL


def part_of(node: Node, own: Region, region: Region, arena: Arena) -> Node:
    """A region of a tensor, of which `node` has another that holds it."""
    for axis, ((first, length), (start, count)) in enumerate(zip(own, region, strict=True)):
        if (first, length) != (start, count):
            attrs = SliceAttrs(axis, start - first, 1, count)
            node = arena.make(Op.SLICE, node, attrs=attrs)
    return node


def text_of(region: Region, shape: tuple[Size, ...]) -> str:
    """As an index is written: "[:, 0:1, :]"."""
    pairs = zip(region, shape, strict=True)
    return f"[{', '.join(_span_text(span, size) for span, size in pairs)}]"


def _span_text(span: Span, size: Size) -> str:
    start, length = span
    if (start, length) == (0, size):
        return ":"
    return str(start) if length == 1 else f"{start}:{start + length}"
