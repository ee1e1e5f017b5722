"""By which forms of kernels a matrix product is made: the best one at the example's sizes first in
line for them, and what is right for all other sizes that the call may have.
"""

from __future__ import annotations

from ...ir.expr import Size
from ...ir.graph import Node
from ...ir.kernels.product import (
    LIVE_DEPTH,
    LIVE_WORTH,
    PARTS,
    SHORTEST_SPLIT,
    SIDES,
    Form,
    FormRow,
    Matrix,
    Mode,
    Product,
    even_strides,
    extent,
)
from ...ir.plan import Sizes, number_at

# Beside how many rows or columns the other operand is read once, as it is. Where TF32 is allowed
# the tensor cores read half of it for more, or, where it is not held and they would have to split
# it first, for more than eight.
MOST_FEW, MOST_FEW_TF32, MOST_FEW_TF32_LIVE = 16, 4, 8
# Rows along k that keep up with memory on the CUDA cores, and rows across it.
RING_ROWS, COLUMN_ROWS = (1, 4, 8, 16), (4, 16)
MOST_RING_ROWS = 8
# A tile for each of the 16 warps of a block.
LEAST_SLICED_ROWS = 256
# Terms of a sum along k, below which a warp's lanes would stand idle.
LEAST_ALONG = 32

_OTHERS = FormRow(Form.FMA)


def choose_forms(
    product: Product, mode: Mode, family: str, sizes: Sizes, side: int = 0
) -> tuple[FormRow, ...]:
    """The forms in the order in which they are asked, at most three: the last makes all products
    that none before it takes. `side`: of the squares by which multiply-adds make it faster than
    others do, or 0.
    """
    if side:
        return _squares(product, side)
    main = _main(product, mode, family, sizes)
    tiles = (FormRow(Form.TILES),) if family != "none" else ()
    match main.form:
        case Form.RING | Form.COLUMNS if _fits_always(product, main) and not main.packed:
            return (main,)
        case Form.COLUMNS | Form.SLICES if _fits_always(product, main):
            return (main, _of_any_strides(main.across))
        case Form.RING | Form.COLUMNS | Form.SLICES:
            return (main, *tiles, _OTHERS)
        case Form.SHORT:
            return (main,) if isinstance(product.k, int) else (main, *tiles, _OTHERS)
        case Form.FMA:
            return (main,)
        case _:
            return (*_few_beside(product, mode, sizes), main, _OTHERS)


def _squares(product: Product, side: int) -> tuple[FormRow, ...]:
    """Few small squares, where a call may have many rows, are followed by larger ones."""
    small, large = (FormRow(Form.FMA, side=each) for each in SIDES)
    if side == large.side:
        return (large,)
    known = all(isinstance(size, int) for size in (product.batches, product.m, product.n))
    return (small,) if known else (small, large)


def _main(product: Product, mode: Mode, family: str, sizes: Sizes) -> FormRow:
    """The best form at the example's sizes."""
    m, n, k = (number_at(size, sizes) for size in (product.m, product.n, product.k))
    tiled = family != "none" and (mode not in PARTS or k >= SHORTEST_SPLIT)
    if mode in PARTS:
        across = _lies_across(*_many(product, m <= n))
        if min(m, n) <= _most_few(product, mode, tiled) and (across or k >= LEAST_ALONG):
            return _few_rows(product, m, n, k, across, sizes)
        if k < SHORTEST_SPLIT:
            return FormRow(Form.SHORT)
        if tiled and splits_in_kernel(product, mode, sizes):
            return FormRow(Form.LIVE)
    return FormRow(Form.TILES) if tiled else _OTHERS


def splits_in_kernel(product: Product, mode: Mode, sizes: Sizes) -> bool:
    """Whether the kernel that multiplies splits both operands itself, in place of passes before:
    where these, of 4 m and 8 n bytes a k, take longer than the work that wider tiles of split
    operands save. On an H200 512x512 results of 65536 terms take 0.40 ms so and 0.45 by passes,
    768x768 of 32768 0.52 and 0.37.
    """
    m, n, k = (number_at(size, sizes) for size in (product.m, product.n, product.k))
    worth = k >= LIVE_DEPTH and m * n < LIVE_WORTH * (m + 2 * n)
    new = mode is Mode.FAITHFUL and not product.held and min(m, n) > MOST_FEW
    pairs = ((product.a, product.a_axes), (product.b, product.b_axes))
    return new and worth and all(_reads_fours(node, axes, sizes) for node, axes in pairs)


def _most_few(product: Product, mode: Mode, tiled: bool) -> int:
    if mode is Mode.TF32 and tiled:
        return MOST_FEW_TF32 if product.held else MOST_FEW_TF32_LIVE
    return MOST_FEW


def _few_rows(product: Product, m: int, n: int, k: int, across: bool, sizes: Sizes) -> FormRow:
    few, many_rows = min(m, n), max(m, n)
    fours = _reads_fours(*_many(product, m <= n), sizes)
    few_node, few_axes = _many(product, m > n)
    sliced = fours and not _lies_across(few_node, few_axes)
    sliced = sliced and _reads_fours(few_node, few_axes, sizes) and k % 4 == 0
    if across:
        fours = fours and many_rows % 4 == 0
        if few > COLUMN_ROWS[0] and sliced and fours:
            return FormRow(Form.SLICES, MOST_FEW, across=True)
        rows = next(rows for rows in COLUMN_ROWS if few <= rows or not fours and rows == 16)
        return FormRow(Form.COLUMNS, rows if fours else COLUMN_ROWS[-1], across=True, packed=fours)
    if few > MOST_RING_ROWS and sliced and many_rows >= LEAST_SLICED_ROWS:
        return FormRow(Form.SLICES, MOST_FEW)
    return FormRow(Form.RING, next(rows for rows in RING_ROWS if few <= rows))


def _few_beside(product: Product, mode: Mode, sizes: Sizes) -> tuple[FormRow, ...]:
    """For few rows of a product that the example has many of, of operands that would have to be
    split at each call.
    """
    sides = [size for size in (product.m, product.n) if not isinstance(size, int)]
    if mode not in PARTS or product.held or not sides:
        return ()
    return (_of_any_strides(_lies_across(*_many(product, not isinstance(product.m, int)))),)


def _of_any_strides(across: bool) -> FormRow:
    """For few rows as they lie; best where the others lie along or `across` k."""
    return FormRow(Form.COLUMNS if across else Form.RING, MOST_FEW, across)


def _fits_always(product: Product, row: FormRow) -> bool:
    """Whether an extent that is no symbol is of few rows."""
    return any(isinstance(size, int) and size <= row.rows for size in (product.m, product.n))


# --- how operands lie, where they have no gaps ---


def _many(product: Product, is_b: bool) -> tuple[Node, Matrix]:
    return (product.b, product.b_axes) if is_b else (product.a, product.a_axes)


def _strides(node: Node, axes: Matrix) -> tuple[Size, Size, Size]:
    """Of batches, rows and sums; an operand of no even ones is copied first."""
    found = even_strides(axes, node.type.shape)
    return found or _strides_of_copy(axes)


def _strides_of_copy(axes: Matrix) -> tuple[Size, Size, Size]:
    row = extent(axes.inner)
    return extent(axes.rows) * row, row, 1


def _lies_across(node: Node, axes: Matrix) -> bool:
    """Whether rows lie nearer in memory than neighbours along k."""
    _, row, inner = (number_at(stride) for stride in _strides(node, axes))
    return row < inner


def _reads_fours(node: Node, axes: Matrix, sizes: Sizes) -> bool:
    """Whether neighbours in memory may be read four at a time."""
    batch, row, inner = (number_at(stride, sizes) for stride in _strides(node, axes))
    near, far = min(row, inner), max(row, inner)
    return near == 1 and far % 4 == 0 and batch % 4 == 0
