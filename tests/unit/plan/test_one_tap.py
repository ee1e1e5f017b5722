"""Convolutions of one tap, whose pixels are multiplied as they lie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.plan.convolving import TF32, conv, one, planned, tail_of
from tests.unit.plan.plans import BATCH, Make

from opweld.ir.kernels.convolution import Convolution, Convolving
from opweld.ir.kernels.product import Mode
from opweld.ir.plan import Conditions, ConvolutionSchedule
from opweld.ir.text import to_text
from opweld.lower import lower
from opweld.plan.products.one_tap_and_halos import estimate_unpacked, is_unpacked
from opweld.plan.products.windows import convolution_of, schedule_of
from opweld.render.cuda.products.convolution import convolution_pieces, convolution_text


def made(
    channels: int,
    space: tuple[int, ...],
    filters: int = 96,
    kernel: tuple[int, ...] | None = None,
    *,
    last: bool = True,
    **given: Any,
) -> Convolution:
    m = Make()
    shape = (*space, channels) if last else (channels, *space)
    x = m.x("x", BATCH, *shape)
    return convolution_of(conv(m, x, filters, kernel or (1,) * len(space), last=last, **given))


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("space", [(500,), (28, 28), (4, 6, 8)])
def test_pixels_of_any_rank_in_both_orders(space: tuple[int, ...], last: bool) -> None:
    assert is_unpacked(made(64, space, last=last), Mode.TF32)


@pytest.mark.parametrize(
    ("channels", "space", "last", "unpacked"),
    [
        (64, (7, 7), True, True),
        (64, (7, 7), False, False),  # rows of 49 pixels
        (66, (8, 8), True, False),  # rows of 66 channels
        (66, (8, 8), False, False),  # a copy would have such rows
        (4, (8, 8), True, True),
    ],
)
def test_rows_are_what_the_copy_engine_takes(
    channels: int, space: tuple[int, ...], last: bool, unpacked: bool
) -> None:
    assert is_unpacked(made(channels, space, last=last), Mode.TF32) == unpacked


def test_what_is_packed_still() -> None:
    small = (8, 8)
    assert not is_unpacked(made(64, small), Mode.FAITHFUL)
    assert not is_unpacked(made(64, small, kernel=(3, 1)), Mode.TF32)
    assert not is_unpacked(made(64, small, stride=2), Mode.TF32)
    assert not is_unpacked(made(64, small, stride=(1, 2)), Mode.TF32)
    assert not is_unpacked(made(64, small, padding=1), Mode.TF32)
    assert not is_unpacked(made(64, small, filters=2052), Mode.TF32)
    assert is_unpacked(made(64, small, filters=2048), Mode.TF32)
    one_tap = made(64, small)
    assert not is_unpacked(replace(one_tap, depthwise=True), Mode.TF32)
    assert not is_unpacked(replace(one_tap, transposed=True), Mode.TF32)
    assert not is_unpacked(replace(one_tap, axes=(0, 2, 1, 3)), Mode.TF32)
    assert not is_unpacked(replace(one_tap, axes=(0, 1, 3, 2)), Mode.TF32)  # rows of channels


@pytest.mark.parametrize(
    ("channels", "filters", "columns"),
    [
        (256, 64, 64),
        (260, 64, 128),  # long sums
        (256, 68, 128),
        (48, 96, 128),
        (64, 128, 128),
        (64, 256, 64),  # short sums
        (68, 256, 128),
        (1024, 256, 128),
    ],
)
def test_wide_tiles_for_many_filters_and_long_sums(
    channels: int, filters: int, columns: int
) -> None:
    expected = ConvolutionSchedule(Mode.TF32, columns, 4, unpacked=True)
    assert schedule_of(made(channels, (28, 28), filters), Mode.TF32) == expected
    assert str(expected).endswith(f"{columns} filters a tile, pixels as they lie, vector width 4")


@pytest.mark.parametrize(
    ("channels", "space", "filters", "columns", "copied_us", "measured_us"),
    [  # with channels last, 32 images, or 8 of the last; H200, 2026-11-29
        (256, (56, 56), 64, 64, 30.4, 38.3),
        (512, (28, 28), 128, 128, 15.2, 27.4),
        (128, (28, 28), 512, 128, 15.2, 30.8),
        (1024, (14, 14), 256, 128, 7.8, 21.3),
        (48, (768, 768), 96, 128, 642.0, 877.7),
    ],
)
def test_estimates_are_near_what_was_measured(
    channels: int,
    space: tuple[int, ...],
    filters: int,
    columns: int,
    copied_us: float,
    measured_us: float,
) -> None:
    sizes = (("s0", 8 if space[0] > 56 else 32),)
    found = estimate_unpacked(made(channels, space, filters), columns, copied_us, sizes)
    assert 0.7 < found / measured_us < 1.3


class TestPlans:
    def group(self, conditions: Conditions = TF32) -> Any:
        m = Make()
        return one(
            tail_of(m, conv(m, m.x("x", BATCH, 64, 28, 28), 96, (1, 1))), conditions=conditions
        )

    def lowered(self) -> Convolving:
        m = Make()
        plan = planned(tail_of(m, conv(m, m.x("x", BATCH, 64, 28, 28), 96, (1, 1))))
        (convolving,) = (each for each in lower(plan) if isinstance(each, Convolving))
        return convolving

    def test_float32_sums_are_packed(self) -> None:
        assert self.group().schedule.unpacked
        assert not self.group(Conditions(tf32_convolutions=False)).schedule.unpacked

    def test_the_text_and_what_it_brings_along(self) -> None:
        convolving = self.lowered()
        assert "  pixels as they lie" in to_text(convolving).splitlines()
        assert "op::OneTapTiles<128>" in convolution_text(convolving)
        pieces = convolution_pieces(convolving)
        assert "OneTapTiles" in pieces and not pieces & {"WindowTiles", "Tf32", "JoinedTiles"}
