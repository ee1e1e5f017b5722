"""Matrix products over named sizes: each axis of batches, rows, columns and sums has the name that
an operand's axis has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..expr import Size
from ..graph import Node
from ..plan import Group
from .product import Axis, Matrix, Product

Shape = tuple[Size, ...]
Axes = tuple[Axis, ...]


class NotLifted(Exception):
    """A group whose sizes cannot be named."""


def with_product(over: Group, final: dict[int, Node]) -> Group:
    """The group with its product over named sizes, too."""
    made, anchor = over.product, over.anchor
    if made is None or anchor is None:
        return over
    a, b = final[made.a.serial], final[made.b.serial]
    shapes = tuple(axis_sizes(one, x, two, y) for one, x, two, y in axes_of(made, a, b))
    rows, columns, inner, batch = shapes
    named = replace(
        made,
        a=a,
        b=b,
        a_axes=_named(made.a_axes, batch, rows, inner),
        b_axes=_named(made.b_axes, batch, columns, inner),
        added=None if made.added is None else final[made.added.serial],
    )
    return replace(over, anchor=final[anchor.serial], product=named)


def axes_of(product: Product, a: Node, b: Node) -> Iterator[tuple[Axes, Node, Axes, Node]]:
    """The axes of rows, columns, sums and batches, each as they are in either operand."""
    of_a, of_b = product.a_axes, product.b_axes
    yield of_a.rows, a, of_a.rows, a
    yield of_b.rows, b, of_b.rows, b
    yield of_a.inner, a, of_b.inner, b
    yield of_a.batch, a, of_b.batch, b


def axis_sizes(one: Axes, x: Node, two: Axes, y: Node) -> Shape:
    """Their sizes, which that operand shows which has them; axes of neither keep their numbers."""
    found: list[Size] = []
    for left, right in zip(one, two, strict=True):
        pairs = ((left, x), (right, y))
        shown = [node.type.shape[axis.place] for axis, node in pairs if axis.place is not None]
        if not shown and not isinstance(left.size, int):
            raise NotLifted
        found.append(shown[0] if shown else left.size)
    return tuple(found)


def _named(axes: Matrix, batch: Shape, rows: Shape, inner: Shape) -> Matrix:
    pairs = ((axes.batch, batch), (axes.rows, rows), (axes.inner, inner))
    return Matrix(
        *(
            tuple(replace(axis, size=size) for axis, size in zip(own, sizes, strict=True))
            for own, sizes in pairs
        )
    )
