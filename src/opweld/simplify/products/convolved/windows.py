"""Sums over windows of space, as pooling is captured: of [batch, channels, space...]."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.attrs import PermuteAttrs, ReduceAttrs, ShapeAttrs, WindowAttrs
from ....ir.expr import product
from ....ir.graph import Arena, Node
from ....ir.ops import Op


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of each axis of space, whose elements `root` condenses; `inside` are the views
    between it and the value `of`.
    """

    root: Node
    of: Node
    axes: tuple[WindowAttrs, ...]
    inside: tuple[Node, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(axis.width for axis in self.axes)

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(axis.step for axis in self.axes)

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(axis.count for axis in self.axes if isinstance(axis.count, int))

    @property
    def num_elems(self) -> int:
        """Of a window."""
        return int(product(self.widths))  # type: ignore[arg-type]


def windows_of(root: Node) -> Windows | None:
    """What a reduction over windows condenses; None where it is another reduction."""
    moved = root.inputs[0]
    if moved.op is not Op.PERMUTE:
        return None
    axes, node, inside = list[WindowAttrs](), moved.inputs[0], [moved]
    while node.op is Op.WINDOW and node.attrs.dim == len(axes) + 2:
        axes.append(node.attrs)
        inside.append(node)
        node = node.inputs[0]
    num = len(axes)
    numbers = all(isinstance(a.count, int) and a.dilation == 1 for a in axes)
    if not axes or not numbers or node.type.rank != num + 2:
        return None
    if moved.attrs.dims != _leading(num) or root.attrs.axes != tuple(range(num)):
        return None
    return Windows(root, node, tuple(axes), tuple(inside))


def condensed(
    op: Op, value: Node, axes: tuple[WindowAttrs, ...], arena: Arena, first: bool = False
) -> Node:
    """A reduction over windows of another value, as pooling is captured."""
    for place in reversed(range(len(axes))):
        value = arena.make(Op.WINDOW, value, attrs=axes[place])
    num = len(axes)
    value = arena.make(Op.PERMUTE, value, attrs=PermuteAttrs(_leading(num)))
    return arena.make(op, value, attrs=ReduceAttrs(tuple(range(num)), first))


def without_windows(node: Node, num: int, arena: Arena) -> Node:
    """[batch, channels, space...] of what such a reduction gives."""
    return arena.make(Op.RESHAPE, node, attrs=ShapeAttrs(node.type.shape[num:]))


def _leading(num: int) -> tuple[int, ...]:
    """The order of axes with those within a window in front."""
    within = tuple(3 + 2 * place for place in range(num))
    return (*within, 0, 1, *(2 + 2 * place for place in range(num)))
