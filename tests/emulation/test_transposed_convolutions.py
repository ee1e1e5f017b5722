"""Transposed convolutions of Hopper's tensor cores whole: filters arranged by phases and packed,
each phase summed, its elements handed to the epilogue where they are in the result. Beside sums in
float64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.emulation.convolutions import CHAIN, NARROW, WIDE, Form, channels_last, slow
from tests.emulation.distributions import exact
from tests.emulation.transposed_convolutions import (
    Case,
    case,
    convolve,
    drawn,
    require_as_exact,
    require_faithful,
    require_float32_where,
    require_of_11_bits,
    require_of_float32,
    workspace_bytes,
)

SPACE = Form(space=3)
FORMS = {"64 columns": NARROW, "128 columns": WIDE}


def require(how: Case, form: Form = NARROW, **options: Any) -> np.ndarray:
    """Made by the tensor cores, and as exact as they are."""
    x, weight = how.operands
    found = convolve(x, weight, how, form=form, **options)
    require_as_exact(found, x, weight, how)
    require_of_11_bits(found, x, weight, how)
    return found


class TestPhases:
    @pytest.mark.parametrize("seed", range(20))
    @pytest.mark.parametrize("space", [1, 2, 3])
    def test_the_reference_is_torchs(self, seed: int, space: int) -> None:
        how = replace(drawn(seed, space), channels=3, filters=2)
        x, weight = (torch.from_numpy(each).double() for each in how.operands)
        name = f"conv_transpose{space}d"
        made = getattr(torch.nn.functional, name)(
            *(x, weight, None, how.stride, how.padding, how.more, 1, how.dilation)
        )
        of_matrices = exact(*how.matrices(*how.operands)).reshape(how.shape)
        np.testing.assert_allclose(of_matrices, made.movedim(1, -1), rtol=1e-12, atol=1e-10)

    @pytest.mark.parametrize("space", [1, 2, 3])
    @pytest.mark.parametrize("seed", [*range(6), *slow(*range(6, 80))])
    def test_any(self, seed: int, space: int) -> None:
        require(drawn(seed, space), SPACE if space == 3 else (NARROW, WIDE)[seed % 2])

    @pytest.mark.parametrize(
        "how",
        [
            case((9, 8), (4, 4), 2, 1),
            case((7, 9), (3, 3), 2, 1, 1),
            case((9, 7), (2, 2), 2),
            case((8, 8), (3, 3), 1, 1),
            case((5, 6), (5, 5), 3, 2, 1),
            case((6, 5), (3, 3), 2, 2, 0, 2),
        ],
        ids=["4 by 4", "3 by 3", "no overlap", "stride 1", "stride 3", "dilated"],
    )
    def test_usual_ones(self, how: Case) -> None:
        require(how)

    @pytest.mark.parametrize(
        "how",
        [
            case((6, 5), (1, 1), 2, 0, 1),
            case((6, 5), (2, 2), 3, 0, 2),
            case((4, 5), (3, 3), 2, 0, 1, 2),
            case((4, 4), (2, 1), 4, 0, 3, 2),
        ],
        ids=["a point", "short", "dilated by the stride", "a common factor"],
    )
    def test_phases_without_taps_are_zeros(self, how: Case) -> None:
        """And are handed over, as any others."""
        reached = how.reached(np.ones((how.batch, *how.size), bool))
        found = require(how)
        assert not reached.all() and (found[~reached] == 0).all() and found[reached].any()

    def test_kernels_of_more_positions_than_a_mask_has_bits(self) -> None:
        """Whose bits are those of positions along each axis."""
        require(case((3, 4, 5), (3, 5, 7), 1, 1, channels=5, filters=6), SPACE)
        require(case((7, 9), (9, 11), 1, 4, channels=5, filters=6))

    @pytest.mark.parametrize("size", [(1, 1), (1, 4), (2, 1)])
    def test_phases_without_pixels(self, size: tuple[int, int]) -> None:
        """The result has fewer pixels than there are phases."""
        require(case(size, (2, 2), 3, 0))
        require(case(size, (3, 3), 4, 1))

    @pytest.mark.parametrize("padding", [3, 5])
    def test_windows_that_begin_inside_of_the_image(self, padding: int) -> None:
        """More is cut off than taps reach."""
        require(case((9, 8), (3, 3), 2, padding, 1))

    def test_pixels_behind_the_last_window(self) -> None:
        require(case((3, 4), (2, 2), 3, 0, 2))

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    @pytest.mark.parametrize("rows", [127, 128, 129, 256])
    def test_pixels_at_the_edges_of_tiles(self, rows: int, form: Form) -> None:
        require(case((rows,), (4,), 2, 1, 1, filters=form.columns + 1), form)

    def test_many_images_in_a_tile(self) -> None:
        require(case((2, 1), (3, 3), 2, 1, 1, batch=70, filters=6))
        require(case((2, 1, 1), (2, 3, 2), 2, 0, 1, batch=30, filters=6), SPACE)

    @pytest.mark.parametrize("filters", [1, 5, 6, 8, 130])
    def test_any_filters(self, filters: int) -> None:
        require(case((5, 4), (3, 3), 2, 1, channels=65, filters=filters))

    def test_no_image(self) -> None:
        how = case((5, 5), (3, 3), 2, batch=0)
        assert convolve(*how.operands, how).shape == (0, 11, 11, 36)


class TestCalls:
    CASE = case((6, 7), (3, 4), 2, 1, 1, batch=2, channels=70)

    def same(self, x: np.ndarray, weight: np.ndarray, **options: Any) -> None:
        """Bit by bit what it is of dense operands."""
        expected = convolve(*self.CASE.operands, self.CASE)
        np.testing.assert_array_equal(convolve(x, weight, self.CASE, **options), expected)

    def test_inputs_of_any_layout(self) -> None:
        x, weight = self.CASE.operands
        self.same(channels_last(x), weight)
        self.same(np.pad(x, ((0, 0), (3, 3), (0, 0), (0, 0)))[:, 3:-3], weight)
        self.same(np.pad(x, ((0, 0), (0, 0), (1, 2), (2, 1)))[:, :, 1:-2, 2:-1], weight)

    def test_weights_of_any_layout(self) -> None:
        x, weight = self.CASE.operands
        self.same(x, channels_last(weight))
        self.same(x, np.ascontiguousarray(weight.swapaxes(0, 1)).swapaxes(0, 1))
        self.same(x, np.pad(weight, ((0, 0), (1, 0), (0, 2), (1, 0)))[:, 1:, :-2, 1:])

    @pytest.mark.parametrize("axes", [(0,), (1,), (2,), (3,), (0, 1, 2), (0, 2, 3)], ids=str)
    def test_an_operand_that_is_the_same_along_axes(self, axes: tuple[int, ...]) -> None:
        """Of its elements along the others each phase reads its own."""
        shape = [1 if axis in axes else size for axis, size in enumerate(self.CASE.shape)]
        residual = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        self.same(*self.CASE.operands, residual=residual)

    def test_ways_of_handing_over(self) -> None:
        self.same(*self.CASE.operands, lanes=1)
        self.same(*self.CASE.operands, order="reverse")
        self.same(*self.CASE.operands, order="seeded", seed=3)

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    @pytest.mark.parametrize("filters", [4, 5])
    def test_sums_in_parts(self, form: Form, filters: int) -> None:
        how = case((3, 3), (6, 6), 2, 2, channels=130, filters=filters)
        one, many = (workspace_bytes(how, form, multiprocessors=n) for n in (1, 132))
        assert many > one
        require(how, form, multiprocessors=132)


class TestValues:
    CASE = case((6, 7), (3, 3), 2, 1, 1, batch=2, channels=70)

    @pytest.mark.parametrize("odd", [np.inf, np.nan])
    def test_what_is_not_finite_shows_where_a_tap_brings_it(self, odd: float) -> None:
        for how in (self.CASE, case((5, 4), (2, 2), 3, 0, 2, batch=2)):
            x, weight = how.operands
            x[1, 3, 2, 1] = odd
            found = convolve(x, weight, how)
            reached = how.reached(~np.isfinite(x[:, 3]))
            np.testing.assert_array_equal(
                np.isfinite(found), ~reached[..., None] & (found == found)
            )
            require_float32_where(~np.isfinite(x), np.zeros(weight.shape), found, how, x, weight)

    @pytest.mark.parametrize("odd", [3e38, 1e-42])
    @pytest.mark.parametrize("side", [0, 1])
    def test_what_does_not_fit_is_summed_in_float32(self, odd: float, side: int) -> None:
        """Of tiles enough that no sum is made in parts."""
        how = replace(self.CASE, batch=6)
        operands = how.operands
        odds = [np.zeros(each.shape, bool) for each in operands]
        odds[side][(1, slice(None), 2, 1) if side == 0 else (slice(None), 1)] = True
        operands[side][odds[side]] = odd
        found = convolve(*operands, how, multiprocessors=1)
        require_float32_where(*odds, found, how, *operands)

    def test_sums_that_lack_digits_are_made_anew(self) -> None:
        how = case((6, 7), (2, 2), 2, channels=60)
        x, weight = how.operands
        huge = np.zeros(x.shape, bool)
        huge[:, 8] = True
        x[huge], weight[8, ::2] = 2.0**40, 0
        found = convolve(x, weight, how, multiprocessors=1)
        require_float32_where(huge, np.zeros(weight.shape), found, how, x, weight)

    def test_zeros(self) -> None:
        x, weight = self.CASE.operands
        for operands in ((0 * x, weight), (x, 0 * weight)):
            assert (convolve(*operands, self.CASE) == 0).all()


class TestFaithful:
    @pytest.mark.parametrize("seed", [0, 3, *slow(*range(5, 30))])
    def test_any(self, seed: int) -> None:
        how = drawn(seed, 2, many=True)
        x, weight = how.operands
        require_faithful(convolve(x, weight, how, form=Form("Faithful")), x, weight, how)

    @pytest.mark.parametrize("seed", [1, *slow(*range(5, 30))])
    def test_the_float32_kernel(self, seed: int) -> None:
        how = drawn(seed, seed % 3 + 1, many=True)
        x, weight = how.operands
        require_faithful(convolve(x, weight, how, form=CHAIN), x, weight, how)


def along(size: int, kernel: int, *windows: int) -> Case:
    """Along one of two axes: stride, padding, more and dilation."""
    stride, padding, more, dilation = windows
    return Case(
        1, 33, (1, size), 4, (1, kernel), (1, stride), (0, padding), (0, more), (1, dilation)
    )


# What the copy engine, or a mask, just takes, and what it does not.
LIMITS = {
    "taps": (along(10, 124, 2, 60, 0, 1), along(10, 125, 2, 60, 0, 1)),
    "a reach": (along(4, 2, 1, 0, 0, 128), along(4, 2, 1, 0, 0, 129)),
    "inside of the image": (along(258, 2, 1, 127, 0, 1), along(260, 2, 1, 129, 0, 1)),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_what_is_beyond_a_limit_is_the_float32_kernels(limit: str) -> None:
    within, beyond = LIMITS[limit]
    require(within)
    found = convolve(*beyond.operands, beyond)
    require_of_float32(found, *beyond.operands, beyond)
