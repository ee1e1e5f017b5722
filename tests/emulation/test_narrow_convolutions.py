"""Convolutions on Hopper's tensor cores whose intervals have 32 or 16 channels, in rows of 64 or 32
bytes: whole, on the CPU, beside sums in float64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.emulation import transposed_convolutions as phased
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
    slow,
    text,
    windows,
    workspace_bytes,
)
from tests.emulation.emulate import EmulationFault
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills

WIDTHS = (16, 32)
MORE_FORMS = ((1, 64), (1, 128), (2, 128))
CHANNELS = {16: (1, 15, 16, 17, 40), 32: (17, 31, 32, 33, 65)}


@pytest.mark.parametrize("width", WIDTHS)
class TestWindows:
    @pytest.mark.parametrize("space", [1, 2, 3])
    @pytest.mark.parametrize("seed", [0, 3, *slow(1, 2, *range(4, 40))])
    def test_any(self, seed: int, space: int, width: int) -> None:
        case = replace(drawn(seed, space), channels=CHANNELS[width][seed % 5])
        columns = (64, 128)[seed // 2 % 2]
        require(case, Form(space=3 if space == 3 else 2, columns=columns, width=width))

    @pytest.mark.parametrize("number", range(5))
    def test_any_channels(self, number: int, width: int) -> None:
        """Of one interval and of several, which are full or not."""
        how = Windows((2, 1), (1, 2), (1, 2))
        require(Case(2, CHANNELS[width][number], (9, 8), 36, (3, 2), how), Form(width=width))

    @pytest.mark.parametrize("columns", [64, 128])
    @pytest.mark.parametrize("beside", [-1, 0, 1])
    def test_filters_at_the_edges_of_tiles(self, beside: int, columns: int, width: int) -> None:
        case = Case(1, width, (9, 8), columns + beside, (3, 2), windows(2, 1, 1))
        require(case, Form(columns=columns, width=width))

    @pytest.mark.parametrize("pixels", [255, 256, 257, 513])
    def test_pixels_at_the_edges_of_what_a_block_packs(self, pixels: int, width: int) -> None:
        """Bit by bit the same where the channels of a pixel lie side by side."""
        case = Case(2, width, (pixels,), 5, (2,), windows(1))
        x, weight = case.operands
        found = require(case, Form(width=width))
        last, _ = convolve(channels_last(x), weight, case.how, form=Form(width=width))
        np.testing.assert_array_equal(found, last)

    @pytest.mark.parametrize("channels", [3, 16, 30])
    def test_inputs_of_any_layout(self, channels: int, width: int) -> None:
        case, form = Case(2, channels, (7, 6), 8, (2, 2), windows(2, 1, 1)), Form(width=width)
        x, weight = case.operands
        expected = require(case, form)
        framed = np.pad(x, ((0, 0), (2, 4), (0, 0), (0, 0)))
        for given in (channels_last(x), framed[:, 2:-4], channels_last(framed)[:, 2:-4]):
            for shift in (0, 1):
                found, _ = convolve(given, weight, case.how, form=form, shift=shift)
                np.testing.assert_array_equal(found, expected)

    def test_blocks_that_make_one_tile_after_the_other(self, width: int) -> None:
        case = Case(1, width, (400,), 130, (2,), windows(1))
        few, many = (require(case, Form(width=width), multiprocessors=n) for n in (2, 16))
        np.testing.assert_array_equal(few, many)

    def test_sums_in_parts(self, width: int) -> None:
        case, form = Case(1, width, (4, 4), 6, (6, 6), windows(2, 1, 3)), Form(width=width)
        x, weight = case.operands
        one, many = (
            workspace_bytes(x, weight, case.how, form=form, multiprocessors=n) for n in (1, 132)
        )
        assert many > one
        require(case, form, multiprocessors=132)

    def test_less_is_packed(self, width: int) -> None:
        x, weight = Case(4, width, (20, 20), 8, (3, 3), windows(2)).operands
        narrow, wide = (
            workspace_bytes(x, weight, windows(2), form=Form(width=each), multiprocessors=1)
            for each in (width, 64)
        )
        assert narrow < 1.2 * wide * width / 64


@pytest.mark.parametrize("width", WIDTHS)
class TestValues:
    how = windows(2, 1, 1)

    def operands(self, width: int, batch: int = 2) -> tuple[np.ndarray, np.ndarray]:
        """Of two intervals, of which the second has two channels."""
        return Case(batch, width + 2, (6, 7), 36, (3, 3), self.how).operands

    @pytest.mark.parametrize("odd", [np.inf, np.nan, 3e38, 1e-42])
    @pytest.mark.parametrize("side", [0, 1])
    def test_edge_values_propagate_as_in_float32(self, odd: float, side: int, width: int) -> None:
        """Of tiles enough that no sum is made in parts."""
        operands = self.operands(width, batch=6)
        odds = [np.zeros(each.shape, bool) for each in operands]
        odds[side][(1, slice(None), 2, 1) if side == 0 else 1] = True
        operands[side][odds[side]] = odd
        operands[1 - side][0] = 0
        form = Form(width=width)
        found, makers = convolve(*operands, self.how, form=form, multiprocessors=1)
        require_float32_where(*odds, found, self.how, *operands)
        assert makers == 1

    def test_each_pixel_has_a_scale_in_each_interval(self, width: int) -> None:
        x, weight = self.operands(width)
        scale = np.exp2(np.random.default_rng(4).integers(-30, 30, (2, 2, 6, 7)))
        x[:, :width] *= scale[:, :1].astype(np.float32)
        x[:, width:] *= scale[:, 1:].astype(np.float32)
        found, makers = convolve(x, weight, self.how, form=Form(width=width))
        require_as_exact(found, x, weight, self.how)
        require_of_11_bits(found, x, weight, self.how)
        assert makers == 1

    @pytest.mark.parametrize("columns", [64, 128])
    def test_sums_that_lack_digits_are_made_anew(self, columns: int, width: int) -> None:
        """Of a channel in another interval than most."""
        x, weight = self.operands(width)
        huge = np.zeros(x.shape, bool)
        huge[:, width] = True
        x[huge], weight[::2, width] = 2.0**40, 0
        form = Form(columns=columns, width=width)
        found, makers = convolve(x, weight, self.how, form=form, multiprocessors=132)
        require_float32_where(huge, np.zeros(weight.shape), found, self.how, x, weight)
        assert makers == 1


@pytest.mark.parametrize("width", WIDTHS)
class TestJoined:
    @pytest.mark.parametrize("space", [1, 2, 3])
    @pytest.mark.parametrize("seed", [2, *slow(0, 1, *range(3, 40))])
    def test_any(self, seed: int, space: int, width: int) -> None:
        case = replace(drawn(seed, space), channels=(1, 2, 3, 4, 7)[seed % 5])
        stride, dilation = ((1, *each)[-2] for each in (case.how.stride, case.how.dilation))
        rows = (seed % 3 + 1) * (stride // np.gcd(stride, dilation))
        columns = (64, 128)[seed // 2 % 2]
        form = Form(space=3 if space == 3 else 2, columns=columns, rows=int(rows), width=width)
        require(case, form)

    @pytest.mark.parametrize("columns", [255, 257, 513])
    def test_rows_at_the_edges_of_blocks(self, columns: int, width: int) -> None:
        case = Case(1, 2, (3, columns), 5, (3, 3), windows(2, 1, 1))
        require(case, Form(rows=3, width=width))

    @pytest.mark.parametrize("odd", [np.inf, 1e38])
    def test_what_halves_do_not_hold_is_float32s(self, odd: float, width: int) -> None:
        case = Case(2, 3, (11, 12), 33, (5, 5), windows(2, 2, 2))
        x, weight = case.operands
        form = Form(rows=2, width=width)
        require(case, form)
        x[1, 2, 3, 4] = odd
        found, makers = convolve(x, weight, case.how, form=form)
        require_float32_where(abs(x) > 1e6, np.zeros(weight.shape), found, case.how, x, weight)
        assert makers == 1


@pytest.mark.parametrize("width", WIDTHS)
class TestTransposed:
    @pytest.mark.parametrize("space", [1, 2, 3])
    @pytest.mark.parametrize("seed", [2, *slow(0, 1, *range(3, 40))])
    def test_any(self, seed: int, space: int, width: int) -> None:
        how = replace(phased.drawn(seed, space), channels=CHANNELS[width][seed % 5])
        self.require(how, Form(space=3 if space == 3 else 2, width=width))

    @pytest.mark.parametrize(
        ("phases", "columns"),
        [(2, 64), *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE_FORMS)],
    )
    def test_usual_ones(self, phases: int, columns: int, width: int) -> None:
        how = phased.case((9, 8), (4, 4), 2, 1, channels=width, filters=33)
        self.require(how, Form(columns=columns, width=width), phases=phases)

    def test_what_is_not_finite(self, width: int) -> None:
        how = phased.case((4, 5), (3, 3), 2, 1, 1, batch=2, channels=width)
        x, weight = how.operands
        x[1, 3, 2, 1] = np.inf
        found = phased.convolve(x, weight, how, form=Form(width=width), phases=2)
        odds = ~np.isfinite(x), np.zeros(weight.shape)
        phased.require_float32_where(*odds, found, how, x, weight)

    def require(self, how: phased.Case, form: Form, **options: Any) -> None:
        x, weight = how.operands
        found = phased.convolve(x, weight, how, form=form, **options)
        phased.require_as_exact(found, x, weight, how)
        phased.require_of_11_bits(found, x, weight, how)


FAULTS = {
    "the swizzle of a descriptor": ("kRowBytes == 64 ? 2 : 3;", "kRowBytes == 64 ? 3 : 2;"),
    "the distance of groups": ("uint64_t(8 * kRowBytes >> 4)", "uint64_t(1024 >> 4)"),
    "the swizzle of a copy": (": CU_TENSOR_MAP_SWIZZLE_32B;", ": CU_TENSOR_MAP_SWIZZLE_64B;"),
    "threads of a scale": (
        "Columns::kMarksScales, SpotsOf<kWidth>::kThreads>",
        "Columns::kMarksScales, 2 * SpotsOf<kWidth>::kThreads>",
    ),
    "pixels of the next interval": ("(taps.interval * kChunks + part) * kWidth", "0"),
    "filters of the next interval": ("chunk * kWidth, column", "chunk * 64, column"),
    "a filter's taps": ("interval_count(channels, kWidth)) * kWidth;", "1) * kWidth;"),
    "lines below each other": ("across ? Of::kLines : Of::kRows;", "Of::kRows;"),
    "where a group lies": ("Of::kAcross ^ k / 4 * kSpread % 8", "Of::kAcross ^ k / 4 % 8"),
}
QUICK = ("the swizzle of a descriptor", "threads of a scale", "where a group lies")


@pytest.mark.parametrize("fault", quick_first(FAULTS, QUICK))
def test_a_fault_shows(fault: str) -> None:
    how, form = windows(2, 1, 1), Form(width=16)
    x, weight = Case(2, 34, (7, 41), 36, (3, 3), how).operands
    x *= np.exp2(np.random.default_rng(4).integers(-30, 30, (2, 1, 7, 41))).astype(np.float32)
    right, wrong = FAULTS[fault]
    source = text(form)
    assert source.count(right) == 1

    def require(source: str) -> None:
        found, makers = convolve(x, weight, how, form=form, source=source)
        require_as_exact(found, x, weight, how)
        require_of_11_bits(found, x, weight, how)
        assert makers == 1

    require(source)
    with pytest.raises((AssertionError, EmulationFault)):
        require(source.replace(right, wrong))


def test_a_fault_shows_in_the_float32_fallback() -> None:
    """Channels of another interval than the one that is summed anew."""
    how, form = Windows((1, 2), (1, 0), (1, 1)), Form(width=16)
    x, weight = Case(2, 34, (7, 9), 9, (3, 2), how).operands
    odd = np.zeros(weight.shape, bool)
    odd[5] = True
    weight[odd] *= 2.0**-115

    def require(source: str) -> None:
        found, _ = convolve(x, weight, how, form=form, source=source, multiprocessors=1)
        require_float32_where(np.zeros(x.shape), odd, found, how, x, weight)

    source, right = text(form), "const int begin = taps.interval * kWidth;"
    assert source.count(right) == 1
    require(source)
    with pytest.raises(AssertionError):
        require(source.replace(right, "const int begin = taps.interval * 64;"))


@needs_nvcc
@pytest.mark.parametrize("form", [Form(width=16), Form(columns=128, width=32, rows=2)], ids=str)
def test_nvcc_takes_it_without_warnings_and_spills(form: Form) -> None:
    require_no_spills(compile_cuda(text(form)))
