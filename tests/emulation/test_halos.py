"""Convolutions by halos, which are packed in shared memory. Beside sums in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.emulation.convolutions import (
    CHAIN,
    Case,
    Form,
    channels_last,
    convolve,
    require_as_exact,
    require_of_11_bits,
    require_of_float32,
    slow,
    text,
    windows,
)
from tests.emulation.emulate import EmulationFault

COLUMNS = Form("Halo")
FORMS = {
    "columns": COLUMNS,
    "one column": Form("Halo", blocks="kColumns, 1"),
    "wide": Form("Halo", columns=128, blocks="kColumns, 2"),
    "wide, one column": Form("Halo", columns=128, blocks="kColumns, 1"),
    "32 channels": Form("Halo", width=32, blocks="kColumns, 2"),
    "deep": Form("Halo", space=3, width=32, blocks="kDeepColumns, 2"),
}


def laid_out(x: np.ndarray, last: bool) -> np.ndarray:
    return channels_last(x) if last else np.ascontiguousarray(x)


def plain(
    batch: int, channels: int, size: tuple[int, ...], filters: int, taps: int = 3, **how: int
) -> Case:
    how = {"padding": 1} | how
    return Case(batch, channels, size, filters, (taps,) * len(size), windows(len(size), **how))


def require(what: Case, form: Form, *, last: bool = False, **options: Any) -> np.ndarray:
    """Made by the tensor cores, and as exact as operands of 11 bits."""
    x, weight = what.operands
    found, makers = convolve(laid_out(x, last), weight, what.how, form=form, **options)
    require_as_exact(found, x, weight, what.how)
    require_of_11_bits(found, x, weight, what.how)
    assert makers == 1
    return found


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
class TestHalos:
    def test_images_at_the_edges_of_patches(self, form: Form, last: bool) -> None:
        for size in ((1, 1), (8, 8), (9, 17), (33, 7)):
            require(plain(2, 40, size, 20), form, last=last)

    def test_channels_at_the_edges_of_intervals(self, form: Form, last: bool) -> None:
        for channels in (3, 8, 37, 64, 136):
            require(plain(1, channels, (6, 10), 12), form, last=last)

    @pytest.mark.parametrize("filters", [1, 63, 65, 130, *slow(64, 127, 128, 200)])
    def test_filters_at_the_edges_of_tiles(self, form: Form, last: bool, filters: int) -> None:
        require(plain(1, 16, (6, 9), filters), form, last=last)

    def test_many_tiles_for_each_block(self, form: Form, last: bool) -> None:
        require(plain(3, 72, (17, 20), 70), form, last=last, multiprocessors=1)

    def test_columns_one_by_one_and_far_positions(self, form: Form, last: bool) -> None:
        what = plain(1, 16, (8, 8), 36)
        together = require(what, form, last=last)
        for options in ({"lanes": 1}, {"narrow": False}, {"aligned": False}):
            np.testing.assert_array_equal(require(what, form, last=last, **options), together)


@pytest.mark.parametrize("name", ["columns", "wide, one column", "32 channels"])
@pytest.mark.parametrize(
    "what",
    [
        plain(1, 24, (7, 11), 20, taps=2, padding=0),
        plain(1, 24, (9, 12), 20, taps=2, padding=2, dilation=2),
        Case(1, 24, (12, 9), 20, (4, 2), windows(2, padding=1)),
    ],
    ids=["even", "dilated", "uneven"],
)
def test_windows_of_all_kinds(name: str, what: Case) -> None:
    require(what, FORMS[name])


@pytest.mark.parametrize("blocks", ["kLine, 1", "kLine, 2"])
@pytest.mark.parametrize("columns", [64, 128])
def test_one_axis(columns: int, blocks: str) -> None:
    form = Form("Halo", columns=columns, blocks=blocks)
    for pixels in (1, 64, 150, 260):
        require(Case(2, 24, (pixels,), 20, (7,), windows(1, padding=3)), form)
    require(Case(1, 72, (90,), 20, (3,), windows(1, padding=5, dilation=9)), form)


def test_three_axes() -> None:
    form = Form("Halo", space=3, width=32, blocks="kDeepColumns, 2")
    require(plain(2, 24, (3, 5, 9), 20), form)
    require(Case(1, 40, (4, 3, 8), 20, (3, 1, 2), windows(3, padding=1)), form)


def test_scales_that_change_from_tile_to_tile_and_between_intervals() -> None:
    """Within what halves hold a tile's values are as exact as ever; others are made anew."""
    what = plain(2, 136, (16, 24), 20)
    x, weight = what.operands
    scale = np.exp2(np.random.default_rng(4).integers(-30, 30, (2, 3, 1, 1)))
    for i in range(3):
        x[:, 64 * i : 64 * i + 64] *= scale[:, i : i + 1].astype(np.float32)
    found, makers = convolve(x, weight, what.how, form=COLUMNS, multiprocessors=1)
    require_as_exact(found, x, weight, what.how)
    assert makers == 1
    for factor in (2.0**-60, 2.0**40):
        np.testing.assert_array_equal(
            convolve(x * np.float32(factor), weight, what.how, form=COLUMNS)[0],
            found * np.float32(factor),
        )


def require_near_behind(
    column: int, found: np.ndarray, what: Case, x: np.ndarray, weight: np.ndarray
) -> None:
    """From this column of pixels on within what operands of 11 bits lose, beside float32 sums."""
    right = convolve(x, weight, what.how, form=CHAIN)[0][:, :, column:]
    largest = np.abs(right).max(-1, keepdims=True)
    assert (np.abs(found[:, :, column:] - right) <= 2e-3 * largest).all()


def test_one_pixel_above_all_others() -> None:
    """What sees it alone is as exact as it; what does not is not lost beside it."""
    what = plain(1, 40, (8, 30), 20)
    x, weight = what.operands
    odd = np.zeros(x.shape, bool)
    odd[0, :, 4, 4] = True
    x[odd] *= 2.0**60
    found, makers = convolve(x, weight, what.how, form=COLUMNS)
    require_near_behind(8, found, what, x, weight)
    assert makers == 1


def test_what_is_not_finite_stays_in_its_sums() -> None:
    what = plain(1, 16, (9, 20), 20)
    x, weight = what.operands
    x[0, 3, 0, 0], x[0, 5, 1, 12], x[0, 0, 8, 19] = np.inf, np.nan, 3e38
    found, _ = convolve(x, weight, what.how, form=COLUMNS)
    expected = convolve(x, weight, what.how, form=CHAIN)[0]
    for each in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(each(found), each(expected))


@pytest.mark.parametrize("name", ["columns", "one column"])
def test_what_does_not_fit_beside_what_loses_digits(name: str) -> None:
    """A band of pixels has both marks."""
    what = plain(1, 16, (24, 16), 20)
    x, weight = what.operands
    x[0, :, 12:16] *= np.float32(2.0**-22)
    x[0, 3, 12, 12] *= np.float32(2.0**42)
    found, _ = convolve(x, weight, what.how, form=FORMS[name])
    right = convolve(x, weight, what.how, form=CHAIN)[0]
    np.testing.assert_allclose(found, right, rtol=4e-3, atol=4e-3 * np.abs(x[0, 3, 12, 12]))
    far = np.s_[:, 16:]
    assert np.abs(found[far] - right[far]).max() <= 4e-3 * np.abs(right[far]).max()


def test_zeros_and_subnormal_numbers() -> None:
    what = plain(1, 16, (9, 20), 20)
    x, weight = what.operands
    assert not convolve(x * 0, weight, what.how, form=COLUMNS)[0].any()
    tiny = x * np.float32(1e-41)
    found = convolve(tiny, weight, what.how, form=COLUMNS)[0]
    np.testing.assert_allclose(
        found, convolve(tiny, weight, what.how, form=CHAIN)[0], rtol=1e-4, atol=1e-44
    )


def test_what_it_does_not_take_is_summed_in_float32() -> None:
    for what in (
        plain(1, 16, (9, 9), 8, stride=2),
        Case(1, 64, (40, 40), 8, (31, 31), windows(2)),  # halos of too many rows
    ):
        x, weight = what.operands
        found, _ = convolve(x, weight, what.how, form=COLUMNS)
        require_of_float32(found, x, weight, what.how)


BROKEN = {
    "another tap": ("(tap - line * c.kernel[2]) * c.dilation[2]", "(tap - line * c.kernel[2])"),
    "a line of a smaller box": ("line = tap / c.kernel[2]", "line = tap / (c.kernel[2] + 1)"),
    "an image that is not there": ("return patch < c.batches ? patch : -1;", "return patch;"),
    "halos from the first output pixel on": ("at[axis] -= halos.c.padding[axis];", "{}"),
    "halos that are not there yet": ("memory.ready[buffer.stage].wait(buffer.parity);", ""),
    "halos that are read still": ("memory.taken[buffer.stage].wait(buffer.parity);", ""),
    "filters that are not there": ("memory.full[ring.stage].wait(ring.parity);", ""),
    "scales of the tile before": (
        "if (interval == tile.first) known.of_filter",
        "if (tile.column == 0) known.of_filter",
    ),
    "the scale of another image": ("__ldg(halos.scales + image)", "__ldg(halos.scales)"),
    "values that do not fit": ("int known = fits ? 0 : kDoesNotFit;", "int known = 0;"),
    "marks of the first pixel alone": ("end = band_at(last);", "end = band_at(first);"),
    "digits that nobody misses": ("known |= kLosesDigits;", "{}"),
    "values that vanish": ("fabsf(v.x[i]) < kLeast;", "false;"),
    "pixels of the next line": ("return exists ? min(c.out[2] - at[2], 8) : 0;", "return 8;"),
    "the other block's pixels": (
        "block_of(part, pixel), group, row)",
        "1 - block_of(part, pixel), group, row)",
    ),
    "the first subtile's pixels": (
        "(T::kPaired ? part * 4 : part % 2 * 8) + pixel / kOfGroup",
        "pixel / kOfGroup",
    ),
    "the scales of other filters": (
        "found.of_filter[filter + 8 * i]",
        "found.of_filter[filter]",
    ),
}


OF_PATCHES = ("return patch < c.batches ? patch : -1;",)


def require_all(form: Form, **options: Any) -> None:
    """What breaks where something of the kernel does."""
    options |= {"lanes": 1, "multiprocessors": 1}
    require(plain(2, 72, (9, 20), 22, taps=2, padding=2, dilation=2), form, **options)
    require(plain(1, 136, (17, 20), 70), form, **options)
    images = plain(2, 16, (9, 9), 22)
    x, weight = images.operands
    scale = np.float32([1.0, 2.0**20])[:, None, None, None]
    found, _ = convolve(x * scale, weight, images.how, form=form, **options)
    require_of_11_bits(found / scale, x, weight, images.how)
    odd = plain(1, 16, (24, 16), 20)  # three patches
    x, weight = odd.operands
    x[0, 3, 12, 12] *= np.float32(2.0**20)
    found, _ = convolve(x, weight, odd.how, form=form, **options)
    require_as_exact(found, x, weight, odd.how)
    for largest in (1.0, 2.0**40):
        what = plain(1, 136, (16, 24), 20)
        x, weight = what.operands
        x[:, 64:] *= np.float32(2.0**-20)
        x[0, :, 4, 4] *= np.float32(largest)
        found, _ = convolve(x, weight, what.how, form=form, **options)
        require_near_behind(8, found, what, x, weight)


@pytest.mark.parametrize("name", FORMS)
def test_a_kernel_that_is_not_broken(name: str) -> None:
    if FORMS[name].space == 2:
        require_all(FORMS[name], source=text(FORMS[name], (1,)))


@pytest.mark.parametrize("columns", [64, 128])
def test_tiles_of_filters_that_are_loaded_ahead(columns: int) -> None:
    """Of few channels, so that halos of several tiles fit."""
    for blocks in ("kLine, 1", "kColumns, 1"):
        form = Form("Halo", columns=columns, blocks=blocks, width=32)
        sizes = (300,) if blocks == "kLine, 1" else (20, 30)
        require(plain(1, 24, sizes, 330), form, multiprocessors=1)


@pytest.mark.parametrize("fault", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("form", [COLUMNS, FORMS["one column"]], ids=["pairs", "one by one"])
def test_a_broken_kernel_is_noticed(form: Form, fault: tuple[str, str]) -> None:
    before, after = fault
    source = text(form, (1,))
    assert before in source
    if form is COLUMNS and before in OF_PATCHES:
        pytest.skip("a tile is one patch")
    with pytest.raises((AssertionError, EmulationFault)):
        require_all(form, source=source.replace(before, after))
