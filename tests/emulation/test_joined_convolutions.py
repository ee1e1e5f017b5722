"""Convolutions of few channels whole, on the CPU: taps joined with channels as the input is packed.
Beside sums in float64.
"""

from __future__ import annotations

import dataclasses
from math import gcd

import numpy as np
import pytest
from tests.emulation.convolution_models import quick_first
from tests.emulation.convolutions import (
    Case,
    Form,
    Windows,
    channels_last,
    convolve,
    drawn,
    require,
    require_as_exact,
    require_float32_where,
    require_of_11_bits,
    require_of_float32,
    slow,
    text,
    windows,
    workspace_bytes,
)
from tests.emulation.emulate import EmulationFault


def rows_of(case: Case, steps: int) -> int:
    """So many steps of the stride, such that packed rows are shared."""
    stride, dilation = ((1, *each)[-2] for each in (case.how.stride, case.how.dilation))
    return steps * (stride // gcd(stride, dilation))


STEM = Case(2, 3, (17, 19), 64, (7, 7), windows(2, 2, 3))


class TestWindows:
    @pytest.mark.parametrize("space", [1, 2, 3])
    @pytest.mark.parametrize("seed", [*range(6), *slow(*range(6, 60))])
    def test_any(self, seed: int, space: int) -> None:
        case = drawn(seed, space)
        channels = (1, 2, 3, 4, 7, 16, 31)[seed % 7]
        case = dataclasses.replace(case, channels=channels)
        form = Form(space=3 if space == 3 else 2, columns=(64, 128)[seed // 2 % 2])
        require(case, dataclasses.replace(form, rows=rows_of(case, seed % 3 + 1)))

    @pytest.mark.parametrize("rows", [2, 4, 6, 8])
    def test_a_stem(self, rows: int) -> None:
        require(STEM, Form(rows=rows))

    def test_a_stem_as_exact_as_float32(self) -> None:
        case = Case(2, 13, (17, 19), 36, (5, 5), windows(2, 2, 2))
        require(case, Form("Faithful", rows=2))

    @pytest.mark.parametrize("mode", ["Tf32", "Faithful"])
    def test_patches(self, mode: str) -> None:
        how = Windows((6, 4), (0, 0), (1, 1))
        require(Case(3, 3, (18, 13), 70, (6, 4), how), Form(mode, rows=6))

    @pytest.mark.parametrize("columns", [127, 128, 129, 255, 256, 257])
    def test_rows_at_the_edges_of_blocks(self, columns: int) -> None:
        require(Case(1, 2, (3, columns), 5, (3, 3), windows(2, 1, 1)), Form(rows=3))

    def test_no_image(self) -> None:
        case = dataclasses.replace(STEM, batch=0)
        found, _ = convolve(*case.operands, case.how, form=Form(rows=2))
        assert found.shape == (0, 9, 10, 64)

    def test_zeros(self) -> None:
        x, weight = STEM.operands
        for operands in ((0 * x, weight), (x, 0 * weight)):
            found, makers = convolve(*operands, STEM.how, form=Form(rows=2))
            assert (found == 0).all() and makers == 1


class TestCalls:
    x, weight = STEM.operands
    form = Form(rows=2)

    def test_operands_of_any_layout(self) -> None:
        """Bit by bit the same."""
        expected = require(STEM, self.form)
        framed = np.pad(self.x, ((0, 0), (2, 4), (0, 0), (0, 0)))
        for x in (channels_last(self.x), framed[:, 2:-4], channels_last(framed)[:, 2:-4]):
            found, _ = convolve(x, self.weight, STEM.how, form=self.form)
            np.testing.assert_array_equal(found, expected)

    def test_equal_calls_give_equal_bits(self) -> None:
        for multiprocessors in (1, 3, 7):
            require(STEM, self.form, multiprocessors=multiprocessors)

    @pytest.mark.parametrize("odd", [np.inf, np.nan, 1e38])
    def test_what_halves_do_not_hold_is_float32s(self, odd: float) -> None:
        x = self.x.copy()
        x[1, 2, 3, 4] = odd
        found, makers = convolve(x, self.weight, STEM.how, form=self.form)
        odds = x != self.x, np.zeros(self.weight.shape)
        require_float32_where(*odds, found, STEM.how, x, self.weight)
        assert makers == 1
        weight = self.weight.copy()
        weight[5, 1, 6, 6] = odd
        found, _ = convolve(self.x, weight, STEM.how, form=self.form)
        odds = np.zeros(x.shape), weight != self.weight
        require_float32_where(*odds, found, STEM.how, self.x, weight)

    @pytest.mark.parametrize("odd", [np.inf, np.nan])
    def test_joined_rows_behind_a_kernel_are_not_seen(self, odd: float) -> None:
        """Of four rows three are joined: two of the second three are no taps."""
        case = Case(1, 3, (12, 9), 6, (4, 3), windows(2))
        x, weight = case.operands
        x[0, 1, 6, 4] = odd
        found, _ = convolve(x, weight, case.how, form=Form(rows=3))
        seen = np.zeros(found.shape[:3], bool)
        seen[0, 3:7, 2:5] = True
        np.testing.assert_array_equal(np.isfinite(found).all(-1), ~seen)

    def test_digits_that_count_and_are_lost_are_float32s(self) -> None:
        x, weight = self.x.copy(), self.weight.copy()
        x[:, 0] *= 1e9
        weight[:, 0] = 0.0
        found, _ = convolve(x, weight, STEM.how, form=self.form)
        odds = abs(x) > 1e6, np.zeros(weight.shape)
        require_float32_where(*odds, found, STEM.how, x, weight)

    def test_what_the_copy_engine_does_not_take_is_float32s(self) -> None:
        case = Case(1, 2, (1, 3), 5, (130, 1), Windows((1, 1), (129, 0), (1, 1)))
        x, weight = case.operands
        assert workspace_bytes(x, weight, case.how, form=Form(rows=1)) == 0
        found, makers = convolve(x, weight, case.how, form=Form(rows=1))
        require_of_float32(found, x, weight, case.how)
        assert makers == 1


FAULTS = {
    "a row too far": ("c.stride[1] - c.padding[1];", "c.stride[1] - c.padding[1] + 1;"),
    "no padding across": ("stride[2] - pixels.by.from.padding[2]", "stride[2]"),
    "rows above the image": ("unsigned(y) < unsigned(c.size[1]) ?", "y < c.size[1] ?"),
    "columns behind the image": ("in_line < unsigned(line.width)", "in_line < 1u << 30"),
    "taps of the next filter": ("if (row >= from.kernel[1]) return -1;", ""),
    "channels before rows": ("row = line / int(c.channels);", "row = line % int(c.channels);"),
    "packed rows too near": ("rows * c.dilation[1] / c.stride[1]", "1"),
}


QUICK = ("a row too far", "no padding across", "taps of the next filter")  # in every run


@pytest.mark.parametrize("fault", quick_first(FAULTS, QUICK))
def test_a_fault_shows(fault: str) -> None:
    """In a kernel that packs, beside the same without it."""
    case = Case(2, 3, (12, 11), 9, (7, 4), Windows((1, 2), (2, 3), (1, 1)))
    form = Form(rows=4 if fault == "packed rows too near" else 3)
    right, wrong = FAULTS[fault]
    source = text(form)
    assert source.count(right) == 1
    x, weight = case.operands
    require(case, form)
    with pytest.raises((AssertionError, EmulationFault)):
        bad, _ = convolve(x, weight, case.how, form=form, source=source.replace(right, wrong))
        require_as_exact(bad, x, weight, case.how)
        require_of_11_bits(bad, x, weight, case.how)


FAULTS_OF_FALLBACK = {
    "a row of the image": ("- from.padding[1] + own.row", "+ own.row"),
    "a column of the image": ("own.tap * from.dilation[2];", "own.tap;"),
    "the filter": (
        "return AllTaps::filter(by.from, number);",
        "return AllTaps::filter(by.to, number);",
    ),
    "from filter to filter": (
        "return AllTaps::filter_stride(by.from);",
        "return AllTaps::filter_stride(by.to);",
    ),
}


@pytest.mark.parametrize("fault", quick_first(FAULTS_OF_FALLBACK, ("a row of the image",)))
def test_a_fault_shows_in_the_float32_fallback(fault: str) -> None:
    """Of a filter that halves do not hold, beside all others in a tile."""
    case = Case(2, 3, (12, 13), 9, (7, 4), Windows((1, 2), (2, 3), (1, 2)))
    form = Form(rows=3)
    right, wrong = FAULTS_OF_FALLBACK[fault]
    source = text(form)
    assert source.count(right) == 1
    x, weight = case.operands
    odd = np.zeros(weight.shape, bool)
    odd[5] = True
    weight[odd] *= 2.0**-115

    def require_float32(source: str) -> None:
        found, _ = convolve(x, weight, case.how, form=form, source=source, multiprocessors=1)
        require_float32_where(np.zeros(x.shape), odd, found, case.how, x, weight)

    require_float32(source)
    with pytest.raises((AssertionError, EmulationFault)):
        require_float32(source.replace(right, wrong))
