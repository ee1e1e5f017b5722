"""Convolutions of Hopper's tensor cores whole: pixels packed, windows fetched, products summed, and
the float32 kernel where the packed form does not fit. Beside sums in float64.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.emulation.convolutions import (
    CHAIN,
    NARROW,
    WIDE,
    Case,
    Form,
    Windows,
    channels_last,
    convolve,
    drawn,
    matrices,
    require,
    require_as_exact,
    require_faithful,
    require_float32_where,
    require_of_11_bits,
    require_of_float32,
    slow,
    windows,
    workspace_bytes,
)
from tests.emulation.distributions import exact

SPACE = Form(space=3)
FORMS = {"64 columns": NARROW, "128 columns": WIDE}
FAITHFUL = Form("Faithful")


class TestWindows:
    def test_the_reference_is_torchs(self) -> None:
        case = drawn(5, 2)
        x, weight = (torch.from_numpy(each).double() for each in case.operands)
        (top, left), (bottom, right) = case.how.padding, case.how.behind or (0, 0)
        padded = torch.nn.functional.pad(x, (left, right, top, bottom))
        made = torch.nn.functional.conv2d(
            padded, weight, stride=case.how.stride, dilation=case.how.dilation
        )
        of_matrices = exact(*matrices(*case.operands, case.how))
        np.testing.assert_allclose(
            of_matrices.reshape(-1), made.permute(0, 2, 3, 1).reshape(-1), rtol=1e-12, atol=1e-10
        )

    @pytest.mark.parametrize("space", [1, 2, 3])
    @pytest.mark.parametrize("seed", [*range(4), *slow(*range(4, 60))])
    def test_any(self, seed: int, space: int) -> None:
        require(drawn(seed, space), SPACE if space == 3 else (NARROW, WIDE)[seed % 2])

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    @pytest.mark.parametrize("rows", [127, 128, 129, 255, 256, 257])
    def test_pixels_at_the_edges_of_tiles(self, rows: int, form: Form) -> None:
        require(Case(1, 33, (rows,), form.columns + 1, (3,), windows(1, 1, 1)), form)

    def test_kernels_of_more_positions_than_a_mask_has_bits(self) -> None:
        """Whose bits are those of positions along each axis."""
        require(Case(2, 33, (4, 5, 7), 6, (3, 5, 7), windows(3, 1, 2)), SPACE)
        require(Case(1, 33, (11, 13), 6, (9, 11), windows(2, 1, 4)))

    def test_many_images_in_a_tile(self) -> None:
        require(Case(70, 40, (2, 1), 6, (3, 3), windows(2, 1, 1)))
        require(Case(130, 40, (1, 1), 6, (1, 1), windows(2)), WIDE)
        require(Case(40, 40, (2, 1, 2), 6, (2, 3, 2), windows(3, 1, 1)), SPACE)

    def test_windows_inside_the_padding(self) -> None:
        found = require(Case(2, 33, (3, 2), 4, (2, 2), windows(2, 1, 3)))
        assert (found[:, :2] == 0).all() and (found[:, -2:] == 0).all() and found.any()

    def test_images_that_end_behind_the_last_window(self) -> None:
        require(Case(3, 33, (10, 9), 4, (1, 2), windows(2, 7)))

    def test_no_image(self) -> None:
        case = Case(0, 33, (5, 5), 4, (3, 3), windows(2, 1, 1))
        assert convolve(*case.operands, case.how)[0].shape == (0, 5, 5, 4)

    def test_zeros(self) -> None:
        case = Case(1, 70, (5, 5), 4, (3, 3), windows(2, 1, 1))
        x, weight = case.operands
        for operands in ((0 * x, weight), (x, 0 * weight)):
            found, makers = convolve(*operands, case.how)
            assert (found == 0).all() and makers == 1


class TestCalls:
    CASE = Case(2, 70, (7, 6), 68, (2, 2), windows(2, 1, 1))
    plain, weight = CASE.operands

    def same(self, x: np.ndarray, form: Form = NARROW, **options: Any) -> None:
        """Bit by bit what it is of rows of pixels, channel by channel."""
        found = convolve(x, self.weight, self.CASE.how, form=form, **options)[0]
        np.testing.assert_array_equal(found, self.expected(form))

    @classmethod
    @cache
    def expected(cls, form: Form) -> np.ndarray:
        return require(cls.CASE, form)

    def test_operands_of_any_layout(self) -> None:
        x = self.plain
        self.same(channels_last(x))
        self.same(channels_last(np.pad(x, ((0, 0), (2, 4), (0, 0), (0, 0))))[:, 2:-4])
        self.same(np.pad(x, ((0, 0), (3, 3), (0, 0), (0, 0)))[:, 3:-3])
        self.same(np.ascontiguousarray(x.transpose(1, 0, 2, 3)).transpose(1, 0, 2, 3))
        self.same(channels_last(x), shift=1)
        self.same(channels_last(x), shift=2)

    @pytest.mark.parametrize("form", FORMS, ids=str)
    def test_ways_of_handing_over(self, form: str) -> None:
        self.same(self.plain, FORMS[form], lanes=1)
        self.same(self.plain, FORMS[form], aligned=False)
        self.same(self.plain, FORMS[form], narrow=False)

    @pytest.mark.parametrize("form", FORMS, ids=str)
    def test_the_order_of_threads_changes_nothing(self, form: str) -> None:
        self.same(self.plain, FORMS[form], order="reverse")
        self.same(self.plain, FORMS[form], order="seeded", seed=3)

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    def test_blocks_that_make_one_tile_after_the_other(self, form: Form) -> None:
        case = Case(1, 65, (400,), 2 * form.columns + 1, (2,), windows(1))
        few, many = (require(case, form, multiprocessors=count) for count in (2, 16))
        np.testing.assert_array_equal(few, many)

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    @pytest.mark.parametrize("filters", [4, 6, 5])
    def test_sums_in_parts(self, form: Form, filters: int) -> None:
        case = Case(1, 130, (3, 3), filters, (3, 3), windows(2, 1, 1))
        one, many = (needs(case, form, count) for count in (1, 132))
        assert many > one
        require(case, form, multiprocessors=132)


def needs(case: Case, form: Form, multiprocessors: int) -> int:
    x, weight = case.operands
    return workspace_bytes(x, weight, case.how, form=form, multiprocessors=multiprocessors)


class TestValues:
    CASE = Case(2, 70, (6, 7), 36, (3, 3), windows(2, 1, 1))
    how = CASE.how
    in_image_1 = (
        np.arange(2)[:, None, None, None] * np.ones((2, 70, 6, 7)),
        np.zeros((36, 70, 3, 3)),
    )

    @pytest.mark.parametrize("odd", [np.inf, np.nan, 3e38, 1e-42])
    @pytest.mark.parametrize("side", [0, 1])
    def test_edge_values_propagate_as_in_float32(self, odd: float, side: int) -> None:
        """Of tiles enough that no sum is made in parts, of which few are odd."""
        operands = replace(self.CASE, batch=6).operands
        odds = [np.zeros(each.shape, bool) for each in operands]
        odds[side][(1, slice(None), 2, 1) if side == 0 else 1] = True
        operands[side][odds[side]] = odd
        operands[1 - side][0] = 0
        found, makers = convolve(*operands, self.how, multiprocessors=1)
        require_float32_where(*odds, found, self.how, *operands)
        assert makers == 1
        if not np.isfinite(odd):
            sums = exact(*matrices(*operands, self.how)).reshape(found.shape)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(sums))

    @pytest.mark.parametrize("bits", [-100, -60, 60, 78])
    def test_of_any_size(self, bits: int) -> None:
        x, weight = self.CASE.operands
        operands = x * np.float32(2.0**bits), weight * np.float32(2.0 ** min(-bits, 60))
        found, makers = convolve(*operands, self.how)
        require_of_11_bits(found, *operands, self.how)
        assert makers == 1

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    def test_each_pixel_has_a_scale_in_each_interval_of_channels(self, form: Form) -> None:
        x, weight = self.CASE.operands
        scale = np.exp2(np.random.default_rng(4).integers(-30, 30, (2, 2, 6, 7)))
        x[:, :64] *= scale[:, :1].astype(np.float32)
        x[:, 64:] *= scale[:, 1:].astype(np.float32)
        found, makers = convolve(x, weight, self.how, form=form)
        require_as_exact(found, x, weight, self.how)
        require_of_11_bits(found, x, weight, self.how)
        assert makers == 1

    @pytest.mark.parametrize("bits", [20, 24, 30, 60])
    @pytest.mark.parametrize("where", ["a channel", "a pixel", "filters", "a tap"])
    def test_a_huge_one_hides_no_others(self, where: str, bits: int) -> None:
        x, weight = self.CASE.operands
        huge = [np.zeros(each.shape, bool) for each in (x, weight)]
        if where in ("a channel", "a pixel"):
            huge[0][:, 68][... if where == "a channel" else (0, 2, 2)] = True
            weight[::2, 68] = 0
        else:
            huge[1][(slice(None), 3, *((1, 1) if where == "a tap" else ()))] = True
            x[1, 3] = 0
        x[huge[0]], weight[huge[1]] = 2.0**bits, 2.0**bits
        found, _ = convolve(x, weight, self.how, multiprocessors=1)
        require_as_exact(found, x, weight, self.how)
        if bits == 20:
            require_of_11_bits(found, x, weight, self.how)
        if bits == 60 and where == "a channel":
            require_float32_where(*huge, found, self.how, x, weight)
        if bits == 60 and where in ("filters", "a tap"):
            require_float32_where(*self.in_image_1, found, self.how, x, weight)

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    def test_sums_that_lack_digits_are_made_anew(self, form: Form) -> None:
        """By the warp that finds them, which hands each element over once."""
        how = windows(2)
        x, weight = Case(2, 160, (6, 7), 67, (2, 2), how).operands
        huge = np.zeros(x.shape, bool)
        huge[:, 8] = True
        x[huge], weight[::2, 8] = 2.0**40, 0
        found, makers = convolve(x, weight, how, form=form, multiprocessors=132)
        require_float32_where(huge, np.zeros(weight.shape), found, how, x, weight)
        assert makers == 1


def flat(
    size: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    behind: int | None = None,
) -> Case:
    """Along one of two axes."""
    after = padding if behind is None else behind
    how = Windows((1, stride), (0, padding), (1, dilation), (0, after))
    return Case(1, 33, (1, size), 4, (1, kernel), how)


# What the copy engine, or a mask, just takes, and what it does not.
LIMITS = {
    "taps": (flat(70, 62), flat(70, 63)),
    "a stride": (flat(20, 1, stride=8), flat(20, 1, stride=9)),
    "padding": (flat(9, 2, padding=128), flat(9, 2, padding=129)),
    "padding behind": (flat(9, 2, padding=0, behind=128), flat(9, 2, padding=0, behind=129)),
    "reach": (flat(140, 2, dilation=128), flat(140, 2, dilation=129)),
    "far to both sides": (
        flat(140, 2, padding=127, dilation=255),
        flat(140, 2, padding=127, dilation=256),
    ),
}
LIMITS_OF_SPACE = {
    "padding": (
        Case(1, 33, (2, 3, 2), 4, (1, 1, 1), Windows((1, 1, 1), (15, 0, 0), (1, 1, 1))),
        Case(1, 33, (2, 3, 2), 4, (1, 1, 1), Windows((1, 1, 1), (16, 0, 0), (1, 1, 1))),
    ),
    "reach": (
        Case(1, 33, (2, 3, 18), 4, (1, 1, 2), Windows((1, 1, 1), (0, 0, 0), (1, 1, 16))),
        Case(1, 33, (2, 3, 18), 4, (1, 1, 2), Windows((1, 1, 1), (0, 0, 0), (1, 1, 17))),
    ),
}


class TestLimits:
    @pytest.mark.parametrize("limit", LIMITS)
    def test_what_is_beyond_is_the_float32_kernels(self, limit: str) -> None:
        within, beyond = LIMITS[limit]
        self.require(within, beyond, NARROW)

    @pytest.mark.parametrize("limit", LIMITS_OF_SPACE)
    def test_in_space(self, limit: str) -> None:
        within, beyond = LIMITS_OF_SPACE[limit]
        self.require(within, beyond, SPACE)

    def require(self, within: Case, beyond: Case, form: Form) -> None:
        require(within, form)
        assert needs(beyond, form, 4) == 0
        found, _ = convolve(*beyond.operands, beyond.how, form=form)
        require_of_float32(found, *beyond.operands, beyond.how)


class TestFaithful:
    @pytest.mark.parametrize("columns", [64, 128])
    @pytest.mark.parametrize("seed", [1, 4, *slow(*range(5, 30))])
    def test_any(self, seed: int, columns: int) -> None:
        case = drawn(seed, 2, many=True)
        found, makers = convolve(*case.operands, case.how, form=Form("Faithful", 2, columns))
        require_faithful(found, *case.operands, case.how)
        assert makers == 1

    def test_what_does_not_fit(self) -> None:
        case = TestValues.CASE
        x, weight = case.operands
        x[0, 5, 3, 3] = np.inf
        found, _ = convolve(x, weight, case.how, form=FAITHFUL)
        require_float32_where(np.isinf(x), np.isinf(weight), found, case.how, x, weight)

    @pytest.mark.parametrize("seed", [2, *slow(*range(5, 30))])
    def test_the_float32_kernel(self, seed: int) -> None:
        case = drawn(seed, seed % 3 + 1, many=True)
        found, _ = convolve(*case.operands, case.how, form=CHAIN)
        require_faithful(found, *case.operands, case.how)
