"""Convolutions of one tap, whose pixels are multiplied as they lie. Beside sums in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.emulation.convolutions import (
    CHAIN,
    Case,
    Form,
    Windows,
    channels_last,
    convolve,
    matrices,
    require_as_exact,
    text,
    windows,
)
from tests.emulation.distributions import error, exact
from tests.emulation.emulate import EmulationFault

NARROW = Form("Unpacked")
WIDE = Form("Unpacked", columns=128)
FORMS = {"64 columns": NARROW, "128 columns": WIDE}
# What kernels make: all bits of the mantissa.
CUDA_NAN = np.array(0x7FFFFFFF, np.uint32).view(np.float32)


def case(batch: int, channels: int, size: tuple[int, ...], filters: int) -> Case:
    return Case(batch, channels, size, filters, (1,) * len(size), windows(len(size)))


def laid_out(x: np.ndarray, last: bool) -> np.ndarray:
    return channels_last(x) if last else np.ascontiguousarray(x)


def rounded_away(values: np.ndarray) -> np.ndarray:
    """Rounded to 11 bits, half away from zero, in float64."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    return np.ldexp(np.trunc(mantissa * 2.0**11 + np.copysign(0.5, mantissa)), exponent - 11)


def require_of_tf32(found: np.ndarray, x: np.ndarray, weight: np.ndarray, how: Windows) -> None:
    """The sums of operands as the tensor cores get them: no float32 kernel has made it."""
    a, b = matrices(x, weight, how)
    flat = found.reshape(1, -1, len(weight))
    assert error(flat, rounded_away(a), rounded_away(b)) <= 2.0**-21 < error(flat, a, b)


def require(what: Case, form: Form, *, last: bool, **options: Any) -> np.ndarray:
    """Made by the tensor cores, and as exact as operands of 11 bits."""
    x, weight = what.operands
    found, makers = convolve(laid_out(x, last), weight, what.how, form=form, **options)
    require_as_exact(found, x, weight, what.how)
    require_of_tf32(found, x, weight, what.how)
    assert makers == 1
    return found


def require_what_is_not_finite(form: Form, *, last: bool, **options: Any) -> None:
    """Where either operand has Inf, NaN or a large value: sums are what float32 makes them."""
    what = case(2, 36, (6, 6), 20)
    x, weight = what.operands
    x[0, 3, 0, 0], x[0, 35, 1, 2], x[1, 0, 5, 5] = np.inf, CUDA_NAN, 3e38
    x[1, 5] = -0.0
    x[1, 6] = 1e-41
    weight[4, 7], weight[19, 35] = -np.inf, CUDA_NAN
    found, makers = convolve(laid_out(x, last), weight, what.how, form=form, **options)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = exact(*matrices(x, weight, what.how)).astype(np.float32)
    flat = expected.reshape(found.shape)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(flat))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(flat))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(flat))
    assert makers == 1


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
class TestOneTap:
    @pytest.mark.parametrize("pixels", [4, 28, 32, 36, 128, 132])
    def test_pixels_at_the_edges_of_tiles(self, form: Form, last: bool, pixels: int) -> None:
        require(case(3, 36, (pixels,), 20), form, last=last)

    @pytest.mark.parametrize("channels", [4, 28, 32, 36, 100, 160])
    def test_channels_at_the_edges_of_stages(self, form: Form, last: bool, channels: int) -> None:
        require(case(2, channels, (6, 6), 36), form, last=last)

    @pytest.mark.parametrize("filters", [1, 31, 36, 63, 64, 66, 127, 136, 200])
    def test_filters_at_the_edges_of_tiles(self, form: Form, last: bool, filters: int) -> None:
        require(case(2, 36, (6, 6), filters), form, last=last)

    def test_columns_one_by_one_and_far_positions(self, form: Form, last: bool) -> None:
        what = case(2, 36, (6, 6), 36)
        together = require(what, form, last=last)
        for options in ({"lanes": 1}, {"narrow": False}, {"aligned": False}):
            np.testing.assert_array_equal(require(what, form, last=last, **options), together)

    def test_sums_in_parts(self, form: Form, last: bool) -> None:
        require(case(1, 640, (4, 4), 66), form, last=last, multiprocessors=64)

    def test_many_tiles_for_each_block(self, form: Form, last: bool) -> None:
        require(case(3, 40, (20, 20), 140), form, last=last, multiprocessors=2)

    def test_what_is_not_finite_stays_in_its_sums(self, form: Form, last: bool) -> None:
        require_what_is_not_finite(form, last=last)


def require_long_sums_of_one_sign(**options: Any) -> None:
    """As exact as rounded operands: what the tensor cores cut off would all have one sign."""
    random = np.random.default_rng(3)
    x, weight = random.random((1, 2048, 32), np.float32), random.random((20, 2048, 1), np.float32)
    found, _ = convolve(channels_last(x), weight, windows(1), form=WIDE, **options)
    a, b = matrices(x, weight, windows(1))
    of_rounding = error(exact(rounded_away(a), rounded_away(b)), a, b)
    assert error(found.reshape(1, -1, 20), a, b) <= 1.05 * of_rounding


def test_long_sums_of_one_sign() -> None:
    require_long_sums_of_one_sign(multiprocessors=1)


def test_sums_that_are_not_promoted_are_noticed() -> None:
    before = "kPromotes = kResident == 1"
    source = text(WIDE)
    assert before in source
    with pytest.raises(AssertionError):
        require_long_sums_of_one_sign(
            multiprocessors=1, source=source.replace(before, "kPromotes = false")
        )


def test_images_of_one_pixel_are_pixels_of_one_image() -> None:
    for last in (True, False):
        require(case(130, 36, (1, 1), 20), NARROW, last=last)


def test_strided_pixels() -> None:
    """Rows of pixels with gaps are boxes of each image; the float32 kernel takes what is left."""
    what = case(3, 36, (7, 5), 20)
    x, weight = what.operands
    gaps = channels_last(np.pad(x, ((0, 0), (0, 4), (0, 0), (0, 0))))[:, :36]
    found, _ = convolve(gaps, weight, what.how, form=NARROW)
    np.testing.assert_array_equal(found, require(what, NARROW, last=True))
    batches = channels_last(np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0))))[:, :, :7]
    np.testing.assert_array_equal(convolve(batches, weight, what.how, form=NARROW)[0], found)


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
def test_what_the_copy_engine_does_not_take(last: bool) -> None:
    """Odd numbers of values in a row, and misaligned operands: the float32 kernel makes them."""
    what = case(2, 36, (6, 6), 20)
    x, weight = what.operands
    expected = convolve(x, weight, what.how, form=CHAIN)[0]
    for shift in (1, 2, 3):
        found = convolve(laid_out(x, last), weight, what.how, form=NARROW, shift=shift)[0]
        np.testing.assert_array_equal(found, expected)
    same = np.broadcast_to(laid_out(x, last)[:1], x.shape)  # images that lie in one place
    found = convolve(same, weight, what.how, form=NARROW)[0]
    np.testing.assert_array_equal(found, convolve(same, weight, what.how, form=CHAIN)[0])
    odd = case(2, 35, (5, 7), 20)
    x, weight = odd.operands
    found = convolve(laid_out(x, last), weight, odd.how, form=NARROW)[0]
    np.testing.assert_array_equal(found, convolve(x, weight, odd.how, form=CHAIN)[0])


BROKEN = {
    "a box of the next image": ("return (box - image * of_image) * kBox;", "return box * kBox;"),
    "channels of pixels in order": ("first ? place % 4 * 2 + place / 4 : place", "place"),
    "a stage that is not waited for": ("memory.full[ring.stage].wait(ring.parity);", ""),
    "a stage that is not free": ("memory.empty[ring.stage].wait(ring.parity);", ""),
    "released before it is read": ("wgmma_wait<0>();", ""),
    "values that are cut": ("? word + 0x1000u : word", "? word : word"),
    "sums that go on": ("before > 0 || step > 0", "1"),
    "the row 8 below": ("i % 2 * 1024", "0"),
    "columns that do not exist": ("if (kWhole || first + j < columns) put", "put"),
    "rows that do not exist": ("if (!has_row(to, row)) return;", ""),
    "a row of the lane's own": ("of_lane(own, lane / 16 + 2 * i)", "own"),
}


@pytest.mark.parametrize("fault", BROKEN.values(), ids=BROKEN)
def test_a_broken_kernel_is_noticed(fault: tuple[str, str]) -> None:
    before, after = fault
    source = text(NARROW)
    assert before in source
    changed = source.replace(before, after)
    with pytest.raises((AssertionError, EmulationFault)):
        for last in (True, False):
            for what in (case(3, 132, (10, 6), 72), case(2, 36, (10, 6), 22)):
                require(what, NARROW, last=last, source=changed, multiprocessors=1)


def test_a_nan_that_is_rounded_is_noticed() -> None:
    before = "? word + 0x1000u : word"
    source = text(NARROW)
    assert before in source
    changed = source.replace(before, "? word + 0x1000u : word + 0x1000u")
    with pytest.raises(AssertionError):
        require_what_is_not_finite(NARROW, last=True, source=changed)
