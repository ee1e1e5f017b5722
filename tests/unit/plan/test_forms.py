"""By which forms a matrix product is made: the best at the example's sizes, and what covers the
other sizes that a call may have.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.ir.expr import Size, symbol
from opweld.ir.kernels.product import Form, FormRow, Mode, form_at
from opweld.plan.cost import square_side
from opweld.plan.products.forms import choose_forms
from opweld.plan.products.recognised import product_of
from opweld.target import SM_90A

from .plans import Make

FMA = FormRow(Form.FMA)
TILES = FormRow(Form.TILES)


def forms(
    m: Size,
    n: Size,
    k: int,
    *,
    held: bool = False,
    across: bool = False,
    rows: int = 1024,
    mode: Mode = Mode.FAITHFUL,
    family: str = "sm90",
) -> tuple[FormRow, ...]:
    """Of x[m, k] by w[n, k] or, where `across`, by w[k, n]; `rows` is m where it is a symbol."""
    make = Make()
    x = make.x("x", m, k)
    w = make.x("w", k, n) if across else make.permute(make.x("w", n, k), 1, 0)
    product = product_of(make.product("mm", x, w, shape=(m, n)))
    return choose_forms(replace(product, held=held), mode, family, (("s0", rows),))


def few(form: Form, rows: int, across: bool = False, packed: bool = False) -> FormRow:
    return FormRow(form, rows, across, packed)


S0 = symbol("s0")


@pytest.mark.parametrize(
    ("rows", "first"),
    [(1, few(Form.RING, 1)), (4, few(Form.RING, 4)), (5, few(Form.RING, 8))]
    + [(9, few(Form.SLICES, 16)), (16, few(Form.SLICES, 16))],
)
def test_few_rows_of_a_linear_are_read_at_the_speed_of_memory_and_more_are_tiles(
    rows: int, first: FormRow
) -> None:
    assert forms(S0, 8192, 8192, held=True, rows=rows) == (first, TILES, FMA)


def test_many_rows_of_a_linear_are_tiles_as_few_ones_are_then() -> None:
    assert forms(S0, 8192, 8192, held=True) == (TILES, FMA)


def test_few_rows_of_a_new_operand_do_not_split_it() -> None:
    beside = few(Form.COLUMNS, 16, across=True)
    assert forms(S0, 8192, 8192, across=True) == (beside, TILES, FMA)
    assert forms(S0, 8192, 8192) == (few(Form.RING, 16), TILES, FMA)


def test_sizes_that_are_numbers_need_no_other_form() -> None:
    assert forms(2048, 1, 8192) == (few(Form.RING, 1),)
    assert forms(S0, 10, 512) == (few(Form.SLICES, 16), few(Form.RING, 16))
    assert forms(S0, 4096, 16) == (FormRow(Form.SHORT),)
    assert forms(512, 2048, 1024) == (TILES, FMA)


def test_long_sums_of_few_results_are_split_as_they_are_multiplied() -> None:
    assert forms(256, 256, 524288, across=True) == (FormRow(Form.LIVE), FMA)
    odd = forms(256, 254, 524288, across=True)
    assert odd == (TILES, FMA), "what cannot be read in vectors is split by passes"


def test_rows_that_cannot_be_read_in_vectors() -> None:
    assert forms(S0, 8191, 8192, across=True, rows=8)[0] == few(Form.COLUMNS, 16, across=True)
    assert forms(S0, 8192, 8191, rows=16)[0] == few(Form.RING, 16)


def test_without_tensor_cores_all_others_are_multiply_adds() -> None:
    assert forms(S0, 8192, 8192, family="none") == (FMA,)
    assert forms(S0, 8192, 8192, family="none", rows=4) == (few(Form.RING, 4), FMA)


def test_tensor_cores_make_few_rows_where_tf32_is_allowed() -> None:
    assert forms(S0, 8192, 8192, held=True, rows=5, mode=Mode.TF32) == (TILES, FMA)
    assert forms(S0, 8192, 8192, rows=8, mode=Mode.TF32)[0] == few(Form.RING, 8)


@pytest.mark.parametrize(
    ("sizes", "form"),
    [((4, 64, 64), Form.RING), ((64, 3, 64), Form.RING), ((5, 64, 64), Form.TILES)]
    + [((5, 64, 32), Form.FMA)],
)
def test_the_form_of_run_time_sizes(sizes: tuple[int, int, int], form: Form) -> None:
    rows = forms(S0, 8192, 8192, held=True, rows=4)
    assert form_at(rows, Mode.FAITHFUL, *sizes).form is form


@pytest.mark.parametrize(
    ("rows", "batch", "side"),
    [(32, S0, 32), (1024, S0, 64), (4096, S0, 0), (32, 32, 32), (256, 256, 32)],
)
def test_small_products_are_squares_of_multiply_adds(rows: int, batch: Size, side: int) -> None:
    """Where a call may have more rows than the example, larger squares make what is left."""
    make = Make()
    x, w = make.x("x", batch, 512), make.permute(make.x("w", 512, 512), 1, 0)
    product = product_of(make.product("mm", x, w, shape=(batch, 512)))
    sizes = (("s0", rows),)
    assert square_side(product, Mode.FAITHFUL, SM_90A, sizes) == side
    found = choose_forms(product, Mode.FAITHFUL, "sm90", sizes, side)
    small = FormRow(Form.FMA, side=32)
    expected = {(32, True): (small, FMA), (32, False): (small,), (64, True): (FMA,)}
    assert found == expected.get((side, batch is S0), (few(Form.RING, 16), TILES, FMA))


def test_products_of_less_precision_are_no_squares() -> None:
    make = Make()
    x, w = make.x("x", 64, 64), make.permute(make.x("w", 64, 64), 1, 0)
    product = product_of(make.product("mm", x, w, shape=(64, 64)))
    assert square_side(product, Mode.FAITHFUL, SM_90A, ()) == 32
    assert not square_side(product, Mode.TF32, SM_90A, ())


@pytest.mark.parametrize(
    ("m", "n", "taken"), [(320, 1024, True), (321, 1024, False), (320, 1025, False)]
)
def test_a_product_of_few_squares_is_made_by_the_smaller_ones(m: int, n: int, taken: bool) -> None:
    small = FormRow(Form.FMA, side=32)
    assert small.takes(Mode.FAITHFUL, m, n, 64) is taken
    assert small.range_text(Mode.FAITHFUL) == "up to 320 squares of 32 rows and columns"
    assert form_at((small, FMA), Mode.FAITHFUL, m, n, 64) is (small if taken else FMA)
