"""Convolutions by halos: which they are, and their patches."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.emitting import all_halos_ours
from tests.unit.plan.convolving import TF32, conv, one, tail_of
from tests.unit.plan.plans import BATCH, Make
from tests.unit.plan.plans import graph as plan_graph

import opweld.device
from opweld.ir.expr import symbols_of
from opweld.ir.kernels.convolution import Blocks, Convolution, Convolving, Halo
from opweld.ir.kernels.product import Mode
from opweld.ir.plan import ConvolutionSchedule, Plan
from opweld.ir.text import to_text
from opweld.lower import lower
from opweld.plan.products import one_tap_and_halos as halos
from opweld.plan.products.one_tap_and_halos import by_halos
from opweld.plan.products.windows import convolution_of, schedule_of
from opweld.render.cuda.products.convolution import convolution_pieces, convolution_text


def made(
    channels: int,
    space: tuple[int, ...],
    kernel: tuple[int, ...],
    filters: int = 64,
    *,
    last: bool = False,
    **given: Any,
) -> Convolution:
    m = Make()
    shape = (*space, channels) if last else (channels, *space)
    return convolution_of(conv(m, m.x("x", BATCH, *shape), filters, kernel, last=last, **given))


class TestHalos:
    @pytest.mark.parametrize(
        ("space", "kernel"), [((65536,), (7,)), ((1024, 1024), (3, 3)), ((32, 96, 96), (3, 3, 3))]
    )
    def test_any_rank(self, space: tuple[int, ...], kernel: tuple[int, ...]) -> None:
        found = by_halos(made(64, space, kernel, padding=1), Mode.TF32, inf)
        assert found is not None and found.tiles > 0

    def test_what_they_are_not(self) -> None:
        space = (1024, 1024)
        plain = made(64, space, (3, 3), padding=1)
        for each in (plain, made(64, space, (3, 3), padding=1, last=True)):
            assert by_halos(each, Mode.TF32, inf) is not None
        others = (
            made(64, space, (3, 3), stride=2),
            made(64, space, (1, 1)),
            made(64, space, (29, 29)),  # 841 taps
            made(64, space, (3, 3), dilation=60),  # halos of too many rows
            replace(plain, transposed=True),
            replace(plain, depthwise=True),
        )
        for other in others:
            assert by_halos(other, Mode.TF32, inf) is None
        volume = made(64, (32, 96, 96), (3, 3, 3), padding=1)
        assert by_halos(volume, Mode.TF32, inf) is not None
        assert by_halos(volume, Mode.TF32, inf, channels_first=False) is None
        assert by_halos(plain, Mode.FAITHFUL, inf) is None
        assert by_halos(plain, Mode.TF32, 0.0) is None  # windows are faster

    def test_patches_fit_where_lines_are_short(self) -> None:
        narrow = by_halos(made(64, (4096, 8), (3, 3), padding=1), Mode.TF32, inf)
        assert narrow is not None and narrow.halo.blocks is Blocks.COLUMNS
        assert narrow.halo.count == 1

    def test_tiles_stand_in_whole_waves(self) -> None:
        """Of few tiles most multiprocessors would wait: windows are summed in parts then."""
        convolved = made(256, (16, 16), (3, 3), 256, padding=1)
        (batch,) = symbols_of(BATCH)
        few, many = (
            by_halos(convolved, Mode.TF32, inf, ((batch, images),)) for images in (16, 1056)
        )
        assert few is not None and many is not None
        assert few.us / few.tiles > 4 * many.us / many.tiles

    def test_ends_of_tiles_take_longer_with_channels_last_or_in_lines_without_fours(self) -> None:
        def us(width: int, first: bool = True) -> float:
            convolved = made(64, (1024, width), (3, 3), padding=1)
            found = by_halos(convolved, Mode.TF32, inf, channels_first=first)
            assert found is not None
            return found.us / found.tiles

        assert us(1024) < us(1024, first=False) == us(1022, first=False) < us(1022)

    def test_few_channels_have_narrow_intervals(self) -> None:
        found = by_halos(made(32, (512, 512), (5, 5), padding=2), Mode.TF32, inf)
        assert found is not None and found.width == 32


@pytest.mark.parametrize(
    ("halo", "patch"),
    [
        (Halo(Blocks.LINE, 2), (1, 1, 256)),
        (Halo(Blocks.COLUMNS, 1), (1, 16, 8)),
        (Halo(Blocks.COLUMNS, 2), (1, 16, 16)),
        (Halo(Blocks.DEEP_COLUMNS, 2), (2, 16, 8)),
    ],
)
def test_patches(halo: Halo, patch: tuple[int, int, int]) -> None:
    assert halo.patch(128) == patch


def test_from_the_plan_to_the_text() -> None:
    m = Make()
    y = m.relu(conv(m, m.x("x", BATCH, 64, 128, 256), 40, (3, 3), padding=1))
    with all_halos_ours():
        group = one(tail_of(m, y))
        assert group.convolution is not None
        schedule = schedule_of(group.convolution, Mode.TF32, channels_first=True)
        group = replace(group, schedule=schedule)
        assert "halos in shared memory, patches of" in str(group.schedule)
        (kernel,) = lower(Plan(plan_graph(), "sm_90a", (group,)))
    assert isinstance(kernel, Convolving) and kernel.halo is not None
    assert "halos in shared memory" in to_text(kernel)
    blocks = f"op::Blocks::{kernel.halo.blocks.value}, {kernel.halo.count}"
    assert f"op::HaloTiles<64, {kernel.width}, {blocks}>" in convolution_text(kernel)
    assert "HaloTiles" in convolution_pieces(kernel)


def test_an_estimate_of_fewer_tiles_is_less() -> None:
    with all_halos_ours():
        times = [
            by_halos(made(64, (size, size), (3, 3), padding=1), Mode.TF32, inf)
            for size in (256, 512)
        ]
    few, many = times
    assert few is not None and many is not None and few.us < many.us


def test_tiles_are_those_of_the_sizes_of_the_example() -> None:
    """Not of some thousand images: at these it takes less than the library."""
    m = Make()
    y = tail_of(m, conv(m, m.x("x", BATCH, 64, 64, 64), 64, (3, 3), padding=1))
    for images in (1, 32):
        sizes = tuple((name, images) for name in symbols_of(BATCH))
        assert one(y, conditions=replace(TF32, sizes=sizes)).convolution is not None
    convolved = made(64, (64, 64), (3, 3), padding=1)
    found = [by_halos(convolved, Mode.TF32, inf, ((name, 4096),)) for name in symbols_of(BATCH)]
    (many,) = (each for each in found if each)
    assert many.tiles == 4096 * 64 * 64 // 256


def test_a_plan_chooses_at_the_sizes_of_the_example() -> None:
    m = Make()
    y = tail_of(m, conv(m, m.x("x", BATCH, 16, 16, 512), 512, (3, 3), last=True, padding=1))
    (name,) = symbols_of(BATCH)
    schedules = [
        one(y, conditions=replace(TF32, sizes=((name, images),))).schedule for images in (2, 32)
    ]
    few, many = (each for each in schedules if isinstance(each, ConvolutionSchedule))
    assert few.halo is None and many.halo is not None


def test_the_kernel_has_the_sizes_that_the_plan_takes_it_for() -> None:
    text = Path(opweld.device.__file__).with_name("conv").joinpath("halo.cuh").read_text("utf-8")
    sizes = f"kTile = {halos._TILE}, kBlock = {halos._BLOCK};"
    taps = f"kMostTaps = {halos._MOST_TAPS};"
    narrow, wide = (halos._HALO_BYTES[columns] // 1024 for columns in (64, 128))
    memory = f"kHaloBytes = (kResident == 2 ? {narrow} : {wide}) * 1024;"
    names = ", ".join(blocks.value for blocks in Blocks)
    for each in (sizes, taps, memory, f"enum class Blocks {{ {names} }};"):
        assert each in text
