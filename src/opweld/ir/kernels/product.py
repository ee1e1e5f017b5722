"""A matrix product: c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, n, k].

The rows of `a` are those of the result, the rows of `b` its columns. Every call that is a product
has this form, with its operands' axes in any order: transposing one costs nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..expr import Size, product
from ..graph import Node


class Mode(enum.Enum):
    """How operands are multiplied; sums are float32 in all modes.

    FAITHFUL: float32, as exact as sums of float32 products. TF32: float32, as exact as products of
    operands rounded to 11 bits. HALF and BFLOAT16: operands of that type.
    """

    FAITHFUL = "faithful"
    TF32 = "tf32"
    HALF = "half"
    BFLOAT16 = "bfloat16"


class Form(enum.Enum):
    """How kernels of the device library make a product."""

    RING = "row ring"
    SLICES = "row slices"
    COLUMNS = "column sums"
    SHORT = "short sums"
    LIVE = "tiles split as they are multiplied"
    TILES = "tiles"
    FMA = "multiply-adds"


# How the device library makes products (contract.cuh). Those of so few rows or columns read their
# operands once, as they are; so do shorter sums than SHORTEST_SPLIT.
SKINNY = {Mode.FAITHFUL: 16, Mode.TF32: 4, Mode.HALF: 16, Mode.BFLOAT16: 16}
SHORTEST_SPLIT = 33
# Operands that are split: into how many 16-bit parts a value.
PARTS = {Mode.FAITHFUL: 2, Mode.TF32: 1}
# Rows and columns of the squares by which multiply-adds make a product, and the most of the smaller
# ones of a product of which the example has few (contract_fma.cuh).
SIDES, MOST_SQUARES = (32, 64), 320
# How often splitting reads operand a, and an operand b that is not held. What it makes is written
# once.
SPLIT_READS, LIVE_SPLIT_READS = 1, 3
# Of FAITHFUL operands that are not held: sums so long, of so few results for the rows and columns
# that are read (contract_live.cuh), are made by a kernel that splits both itself.
LIVE_DEPTH, LIVE_WORTH = 1024, 176


@dataclass(frozen=True, slots=True)
class FormRow:
    """A form and the products that it takes: of the sizes that `range_text` says, beside few
    `rows` those whose other operand lies `across` k, or along it. `packed`: it is read in vectors.
    `side` is that of the squares of multiply-adds.
    """

    form: Form
    rows: int = 0
    across: bool = False
    packed: bool = False
    side: int = SIDES[-1]

    def takes(self, mode: Mode, m: int, n: int, k: int) -> bool:
        """Whether the sizes are its own."""
        if self.form in (Form.RING, Form.SLICES, Form.COLUMNS):
            return min(m, n) <= self.rows
        if self._of_few_squares:
            return -(-m // self.side) * -(-n // self.side) <= MOST_SQUARES
        least, most = self._terms(mode)
        return least <= k and (most is None or k <= most)

    @property
    def _of_few_squares(self) -> bool:
        return self.form is Form.FMA and self.side < SIDES[-1]

    def _terms(self, mode: Mode) -> tuple[int, int | None]:
        """The fewest and the most terms of a sum."""
        if self.form is Form.SHORT:
            return 0, SHORTEST_SPLIT - 1
        if self.form is Form.LIVE:
            return LIVE_DEPTH, None
        split = self.form is Form.TILES and mode in PARTS
        return SHORTEST_SPLIT if split else 0, None

    def range_text(self, mode: Mode) -> str:
        """The sizes that it takes, in words."""
        if self.rows:
            return "1 row or column" if self.rows == 1 else f"up to {self.rows} rows or columns"
        if self._of_few_squares:
            return f"up to {MOST_SQUARES} squares of {self.side} rows and columns"
        least, most = self._terms(mode)
        if most is not None:
            return f"sums of up to {most} terms"
        return f"sums of {least} terms or more" if least else "others"


def form_at(forms: tuple[FormRow, ...], mode: Mode, m: int, n: int, k: int) -> FormRow:
    """The form that makes a product of these sizes; the last makes all that the others do not."""
    return next((row for row in forms if row.takes(mode, m, n, k)), forms[-1])


@dataclass(frozen=True, slots=True)
class Axis:
    """A part of an extent of the product: axis `place` of the operand, None where it is
    broadcast.
    """

    size: Size
    place: int | None


@dataclass(frozen=True, slots=True)
class Matrix:
    """Which axes of an operand, outermost first, make its batches, its rows and its sums."""

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    inner: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """What a call computes: alpha * product + beta * added, `added` broadcast to the result.

    `a` and `b` are tensors in memory, with the views before them told by the matrices. `added` is
    an operand of the call, or None. `held`: b is a weight, whose form for the kernels is kept from
    call to call.
    """

    a: Node
    b: Node
    a_axes: Matrix
    b_axes: Matrix
    added: Node | None = None
    alpha: int | float = 1
    beta: int | float = 1
    held: bool = False

    @property
    def batches(self) -> Size:
        return extent(self.a_axes.batch)

    @property
    def m(self) -> Size:
        return extent(self.a_axes.rows)

    @property
    def n(self) -> Size:
        return extent(self.b_axes.rows)

    @property
    def k(self) -> Size:
        return extent(self.a_axes.inner)

    @property
    def flops(self) -> Size:
        """Two operations a term."""
        return self.batches * self.m * self.n * self.k * 2


@dataclass(frozen=True, slots=True)
class RowsProduct:
    """A call that makes each row of its result from one row of `a`: alpha * (a b) + beta * added.

    `a` is [..., k]; `b` is [k, n], or [n, k] where `turned`; `added` is [n], or None.
    """

    a: Node
    b: Node
    turned: bool
    added: Node | None = None
    alpha: int | float = 1
    beta: int | float = 1

    @property
    def operands(self) -> tuple[Node, ...]:
        return (self.a, self.b) if self.added is None else (self.a, self.b, self.added)


def extent(axes: tuple[Axis, ...]) -> Size:
    return product(axis.size for axis in axes)


def even_strides(matrix: Matrix, shape: tuple[Size, ...]) -> tuple[Size, Size, Size] | None:
    """The distances of batches, rows and sums of an operand of this shape that lies without gaps,
    in elements (0: broadcast); None where the axes of one of them are no evenly spaced one.
    """
    steps = [product(shape[axis + 1 :]) for axis in range(len(shape))]
    found = [_folded(axes, steps) for axes in (matrix.batch, matrix.rows, matrix.inner)]
    batch, row, inner = found
    return None if batch is None or row is None or inner is None else (batch, row, inner)


def _folded(axes: tuple[Axis, ...], steps: list[Size]) -> Size | None:
    stride: Size = 0
    expected: Size | None = None
    for axis in reversed([axis for axis in axes if axis.size != 1]):
        step = 0 if axis.place is None else steps[axis.place]
        if expected is None:
            stride = step
        elif step != expected:
            return None
        expected = step * axis.size
    return stride
