"""Transposed convolutions of Hopper's tensor cores whose phases along the last axis are columns of
one product: bit by bit what they are as products side by side, and beside sums in float64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.emulation.convolutions import NARROW, WIDE, Form, channels_last, slow
from tests.emulation.transposed_convolutions import (
    Case,
    case,
    convolve,
    drawn,
    require_as_exact,
    require_float32_where,
    require_of_11_bits,
    require_of_float32,
    text,
    workspace_bytes,
)

SPACE = Form(space=3)
FORMS = {"64 columns": NARROW, "128 columns": WIDE}


def columns(how: Case) -> int:
    """The fewest that have all phases along the last axis."""
    return next(count for count in (2, 4, 8) if how.stride[-1] <= count)


def require(
    how: Case, form: Form = NARROW, phases: int | None = None, *, bits: bool = True, **options: Any
) -> None:
    """As exact as the tensor cores, and the bits of products side by side: none of these cases,
    but some of those drawn, is summed in other parts then.
    """
    x, weight = how.operands
    if form is not WIDE:  # it is of pairs of blocks
        options["multiprocessors"] = 1
    found = convolve(x, weight, how, form=form, phases=phases or columns(how), **options)
    require_as_exact(found, x, weight, how)
    require_of_11_bits(found, x, weight, how)
    if form is not WIDE and bits:
        np.testing.assert_array_equal(found, convolve(x, weight, how, form=form, **options))


def without_dilation(seed: int, space: int) -> Case:
    """Along the last axis, where some pixel reaches the result."""
    for each in range(1000 * seed, 1000 * seed + 1000):
        how = drawn(each, space)
        how = replace(how, dilation=(*how.dilation[:-1], 1), more=(*how.more[:-1], 0))
        pixels = np.ones((how.batch, *how.size), bool)
        if min(how.out) > 0 and how.reached(pixels).any():
            return how
    raise AssertionError("no case was found")


@pytest.mark.parametrize("space", [1, 2, 3])
@pytest.mark.parametrize("seed", [*range(1, 4), *slow(*range(4, 60))])
def test_any(seed: int, space: int) -> None:
    how = without_dilation(seed, space)
    require(how, SPACE if space == 3 else (NARROW, WIDE)[seed % 2], bits=False)


@pytest.mark.parametrize(
    "how",
    [
        case((5, 6), (4, 4), 2, 1),
        case((5, 6), (3, 3), 2, 1, 1),
        case((5, 6), (2, 2), 2),
        case((4, 5), (5, 5), 3, 2, 1),
        case((6,), (11,), 8, 3),
        case((4, 5), (1, 1), 2, 0, 1),
        case((4, 5), (3, 3), 2, 2, 0, 2),
        case((9, 8), (3, 3), 2, 5, 1),
        case((1, 1), (2, 2), 3, 0),
        case((3, 4), (2, 2), 3, 0, 2),
    ],
    ids=[
        "4 by 4",
        "3 by 3",
        "no overlap",
        "a column without a phase",
        "8 columns",
        "phases without taps",
        "dilated by the stride",
        "windows that begin inside of the image",
        "fewer pixels than phases",
        "pixels behind the last window",
    ],
)
def test_usual_ones(how: Case) -> None:
    require(how)


def test_more_columns_than_phases() -> None:
    require(case((4, 5), (3, 3), 2, 1), phases=4)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("filters", [1, 5, 31, 32, 33, 66])
def test_any_filters(filters: int, form: Form) -> None:
    require(case((3, 4), (3, 3), 2, 1, channels=5, filters=filters), form)


@pytest.mark.parametrize("stride", [2, 4, 8])
@pytest.mark.parametrize("lanes", [1, 4])
def test_ways_of_handing_over(stride: int, lanes: int) -> None:
    how = replace(case((4, 5), (3, 3), 2, 1, filters=4, channels=5), stride=(2, stride))
    require(how, lanes=lanes)
    require(how, lanes=lanes, channels_first=True)
    require(how, lanes=lanes, residual=np.ones((1, *how.out[:1], 1, 4), np.float32))


def test_operands_of_any_layout() -> None:
    how = case((4, 5), (3, 4), 2, 1, 1, batch=2, channels=70)
    x, weight = how.operands
    expected = convolve(x, weight, how)
    for given in (
        (channels_last(x), channels_last(weight)),
        (x, np.pad(weight, ((0, 0), (1, 0), (0, 2), (1, 0)))[:, 1:, :-2, 1:]),
    ):
        np.testing.assert_array_equal(convolve(*given, how, phases=2), expected)


def test_sums_in_parts() -> None:
    how = case((3, 3), (6, 6), 2, 2, channels=130, filters=4)
    one, many = (workspace_bytes(how, phases=2, multiprocessors=n) for n in (1, 132))
    assert many > one
    x, weight = how.operands
    require_as_exact(convolve(x, weight, how, phases=2, multiprocessors=132), x, weight, how)


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_what_is_not_finite_shows_where_a_tap_brings_it(odd: float) -> None:
    """Not in columns that have no such tap."""
    for how in (case((4, 5), (3, 3), 2, 1, 1, batch=2), case((5, 4), (2, 2), 3, 0, 2, batch=2)):
        x, weight = how.operands
        x[1, 3, 2, 1] = odd
        found = convolve(x, weight, how, phases=columns(how))
        reached = how.reached(~np.isfinite(x[:, 3]))
        np.testing.assert_array_equal(np.isfinite(found), ~reached[..., None] & (found == found))
        require_float32_where(~np.isfinite(x), np.zeros(weight.shape), found, how, x, weight)


@pytest.mark.parametrize("side", [0, 1])
def test_what_does_not_fit_is_summed_in_float32(side: int) -> None:
    how = case((4, 5), (3, 3), 2, 1, 1, batch=6, channels=70)
    operands = how.operands
    odds = [np.zeros(each.shape, bool) for each in operands]
    odds[side][(1, slice(None), 2, 1) if side == 0 else (slice(None), 1)] = True
    operands[side][odds[side]] = 3e38
    found = convolve(*operands, how, phases=2, multiprocessors=1)
    require_float32_where(*odds, found, how, *operands)


@pytest.mark.parametrize(
    "how",
    [
        Case(1, 33, (1, 10), 4, (1, 129), (1, 2), (0, 60), (0, 0), (1, 1)),
        case((4, 5), (3, 3), 2, 1, 0, 3, channels=33, filters=4),
        case((4, 5), (3, 3), 3, 1, channels=33, filters=4),
    ],
    ids=["more taps than a mask has", "taps that are not neighbours", "more phases than columns"],
)
def test_what_is_beyond_a_limit_is_the_float32_kernels(how: Case) -> None:
    """As products side by side: a zero of a weight would make NaN of Inf."""
    x, weight = how.operands
    require_of_float32(convolve(x, weight, how, phases=2), x, weight, how)


FAULTS = {
    "a phase that begins elsewhere": ("i -= of.shift,", "i -= 0,"),
    "taps that it has not": ("exists = unsigned(i) < unsigned(taps)", "exists = true"),
    "another column's row": ("to.add(one_row);\n            }", "}"),
    "rows that are not there": ("count = min(stride[axis], size[axis] - o)", "count = kColumns"),
    "another filter": ("column / kColumns, own", "column, own"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_broken_shows(fault: str) -> None:
    how = case((4, 5), (3, 5), 3, 1, 1, channels=5, filters=4)
    source = text(NARROW, lanes=(4,), phases=4)
    right, wrong = FAULTS[fault]
    assert source.count(right) == 1
    x, weight = how.operands
    with pytest.raises(Exception):  # noqa: B017
        found = convolve(x, weight, how, phases=4, lanes=4, source=source.replace(right, wrong))
        require_as_exact(found, x, weight, how)
