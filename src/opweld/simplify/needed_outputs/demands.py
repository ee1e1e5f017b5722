"""Which parts of its operands an operation needs for a part of its result: one row per operation.

`widened` is the smallest region of the result, around a wanted one, that the operation can make by
itself; `needs` are those of its operands for that, `attrs` what it carries then. An operation
without a row makes all of its result of all of its operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...ir.attrs import ShapeAttrs, SliceAttrs
from ...ir.expr import Size
from ...ir.graph import Node
from ...ir.ops import Kind, Op
from .regions import Region, shape_of, whole


def _same_region(node: Node, region: Region) -> Region:
    return region


def _same_attrs(node: Node, region: Region) -> Any:
    return node.attrs


@dataclass(frozen=True, slots=True)
class Demand:
    needs: Callable[[Node, Region], tuple[Region, ...]]
    widened: Callable[[Node, Region], Region] = _same_region
    attrs: Callable[[Node, Region], Any] = _same_attrs


def demand_of(node: Node) -> Demand | None:
    """The row of an operation; calls have theirs elsewhere (`calls`)."""
    return _BY_OP.get(node.op) or _BY_KIND.get(node.kind)


def along(axes: tuple[int, ...], node: Node, region: Region) -> Region:
    """The region with all of some axes of the node."""
    shape = node.type.shape
    return tuple((0, shape[a]) if a in axes else span for a, span in enumerate(region))


def broadcast_part(operand: tuple[Size, ...], region: Region) -> Region:
    """Of an operand that is broadcast to the result."""
    behind = region[len(region) - len(operand) :]
    return tuple((0, 1) if size == 1 else span for size, span in zip(operand, behind, strict=True))


def _broadcast(node: Node, region: Region) -> tuple[Region, ...]:
    return tuple(broadcast_part(operand.type.shape, region) for operand in node.inputs)


def _reduced(node: Node, region: Region) -> tuple[Region, ...]:
    return (along(node.attrs.axes, node.inputs[0], region),)


def _scanned(node: Node, region: Region) -> Region:
    return along((node.attrs.axis,), node, region)


def _alike(node: Node, region: Region) -> tuple[Region, ...]:
    return tuple(region for _ in node.inputs)


def _permuted(node: Node, region: Region) -> tuple[Region, ...]:
    places = node.attrs.dims
    return (tuple(region[places.index(axis)] for axis in range(len(places))),)


def _shape_attrs(node: Node, region: Region) -> ShapeAttrs:
    return ShapeAttrs(shape_of(region))


# --- reshapes: axes at both ends that stay ---


def _kept_axes(node: Node) -> tuple[int, int]:
    """How many of the first and of the last axes a reshape keeps."""
    before, after = node.inputs[0].type.shape, node.type.shape
    most = min(len(before), len(after))
    front = next((i for i in range(most) if before[i] != after[i]), most)
    back = next((i for i in range(most - front) if before[-1 - i] != after[-1 - i]), most - front)
    return front, back


def _reshaped(node: Node, region: Region) -> Region:
    front, back = _kept_axes(node)
    return along(tuple(range(front, len(region) - back)), node, region)


def _before_reshape(node: Node, region: Region) -> tuple[Region, ...]:
    front, back = _kept_axes(node)
    own = whole(node.inputs[0].type.shape)
    behind = region[len(region) - back :]
    return ((*region[:front], *own[front : len(own) - back], *behind),)


# --- slices and what moves elements ---


def _before_slice(node: Node, region: Region) -> tuple[Region, ...]:
    a = node.attrs
    start, length = region[a.dim]
    spans = list(region)
    spans[a.dim] = (a.start + start * a.step, (length - 1) * a.step + 1)
    return (tuple(spans),)


def _slice_attrs(node: Node, region: Region) -> SliceAttrs:
    return replace(node.attrs, start=0, length=region[node.attrs.dim][1])


def _before_flip(node: Node, region: Region) -> tuple[Region, ...]:
    shape, dims = node.type.shape, node.attrs.dims
    return (
        tuple(
            (shape[axis] - start - length, length) if axis in dims else (start, length)
            for axis, (start, length) in enumerate(region)
        ),
    )


def _joined(node: Node, region: Region) -> Region:
    return along((node.attrs.dim,), node, region)


def _before_cat(node: Node, region: Region) -> tuple[Region, ...]:
    return tuple(along((node.attrs.dim,), operand, region) for operand in node.inputs)


def _padded(node: Node, region: Region) -> Region:
    return along(_padded_axes(node), node, region)


def _padded_axes(node: Node) -> tuple[int, ...]:
    widths = zip(node.attrs.before, node.attrs.after, strict=True)
    return tuple(axis for axis, pair in enumerate(widths) if pair != (0, 0))


def _before_pad(node: Node, region: Region) -> tuple[Region, ...]:
    return (along(_padded_axes(node), node.inputs[0], region),)


def _windows(node: Node, region: Region) -> Region:
    return along((node.attrs.dim, node.attrs.dim + 1), node, region)


def _before_windows(node: Node, region: Region) -> tuple[Region, ...]:
    dim = node.attrs.dim
    size = node.inputs[0].type.shape[dim]
    return ((*region[:dim], (0, size), *region[dim + 2 :]),)


def _before_gather(node: Node, region: Region) -> tuple[Region, ...]:
    source, index = (broadcast_part(each.type.shape, region) for each in node.inputs)
    return along((node.attrs.dim,), node.inputs[0], source), index


_BY_KIND: dict[Kind, Demand] = {
    Kind.POINTWISE: Demand(_broadcast),
    Kind.REDUCTION: Demand(_reduced),
    Kind.SCAN: Demand(_alike, _scanned),
}
_BY_OP: dict[Op, Demand] = {
    Op.PERMUTE: Demand(_permuted),
    Op.EXPAND: Demand(_broadcast, attrs=_shape_attrs),
    Op.RESHAPE: Demand(_before_reshape, _reshaped, _shape_attrs),
    Op.SLICE: Demand(_before_slice, attrs=_slice_attrs),
    Op.FLIP: Demand(_before_flip),
    Op.CAT: Demand(_before_cat, _joined),
    Op.PAD: Demand(_before_pad, _padded),
    Op.WINDOW: Demand(_before_windows, _windows),
    Op.GATHER: Demand(_before_gather),
}
