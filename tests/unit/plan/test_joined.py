"""Convolutions of few channels, whose taps across are joined with the channels."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from tests.unit.plan.convolving import (
    LIBRARY,
    TF32,
    conv,
    no_halos,
    one,
    planned,
    refusal,
    tail_of,
)
from tests.unit.plan.plans import BATCH, Make

from opweld.ir.attrs import CallAttrs
from opweld.ir.kernels.convolution import Convolving
from opweld.ir.kernels.product import Mode
from opweld.ir.plan import Conditions, ConvolutionSchedule, Group, Plan
from opweld.ir.text import to_text
from opweld.lower import lower
from opweld.plan.products.joined import joined, joining
from opweld.plan.products.windows import convolution_of, estimate_convolution, schedule_of
from opweld.render.cuda.texts import cuda_text
from opweld.target import SM_90A


def found(
    channels: int, kernel: tuple[int, ...], space: tuple[int, ...], **given: Any
) -> tuple[Any, Any]:
    m = Make()
    call = conv(m, m.x("x", BATCH, channels, *space), 64, kernel, **given)
    assert isinstance(call.attrs, CallAttrs)
    return call, convolution_of(call)


@pytest.mark.parametrize(
    ("channels", "kernel", "given", "rows", "intervals", "packed"),
    [
        (3, (7, 7), {"stride": 2}, 2, 4, 1),  # each packed row is read by four taps
        (3, (3, 3), {"stride": 2}, 4, 1, 1),  # all taps in one
        (3, (3, 3), {}, 3, 1, 1),
        (16, (3, 3), {}, 1, 3, 1),
        (3, (16, 16), {"stride": 16}, 16, 12, 12),
        (1, (400,), {"stride": 160}, 1, 7, 7),
        (3, (3, 7, 7), {"stride": (1, 2, 2)}, 2, 12, 1),
        (3, (5, 5), {"stride": (3, 1), "dilation": (3, 1)}, 3, 2, 1),
        (3, (5, 5), {"stride": (3, 1), "dilation": (2, 1)}, 3, 2, 1),
    ],
)
def test_the_number_of_rows(
    channels: int,
    kernel: tuple[int, ...],
    given: dict[str, Any],
    rows: int,
    intervals: int,
    packed: int,
) -> None:
    """Of two parts of each value, whose intervals have 64 channels."""
    _, made = found(channels, kernel, (448,) * len(kernel), **given)
    best = joined(made, Mode.FAITHFUL)
    assert (best.rows, best.intervals, best.packed) == (rows, intervals, packed)
    assert best.width == 64 and joining(made, Mode.FAITHFUL)


@pytest.mark.parametrize(
    ("channels", "kernel", "given", "rows", "width", "intervals", "packed"),
    [
        (3, (7, 7), {"stride": 2}, 2, 64, 4, 1),
        (3, (3, 3), {"stride": 2}, 2, 32, 2, 1),  # 18 values
        (3, (3, 3), {}, 3, 32, 1, 1),  # all 27
        (1, (3, 3), {}, 3, 16, 1, 1),
        (4, (3, 3), {}, 1, 16, 3, 1),
        (3, (16, 16), {"stride": 16}, 16, 64, 12, 12),  # nothing is packed twice
        (1, (10,), {"stride": 5}, 1, 16, 1, 1),
    ],
)
def test_rows_and_width_are_the_cheapest(
    channels: int,
    kernel: tuple[int, ...],
    given: dict[str, Any],
    rows: int,
    width: int,
    intervals: int,
    packed: int,
) -> None:
    _, made = found(channels, kernel, (448,) * len(kernel), **given)
    best = joined(made, Mode.TF32)
    assert (best.rows, best.width) == (rows, width)
    assert (best.intervals, best.packed) == (intervals, packed)
    assert joining(made, Mode.TF32)
    schedule = schedule_of(made, Mode.TF32)
    assert (schedule.rows, schedule.width) == (rows, width)


@pytest.mark.parametrize(
    ("given", "rows", "max_offset"),
    [
        ({}, 1, 6),
        ({"dilation": (3, 1)}, 1, 18),
        ({"stride": (2, 1)}, 2, 3),
        ({"stride": (2, 1), "dilation": (2, 1)}, 1, 6),
    ],
)
def test_the_max_offset_is_in_packed_rows(
    given: dict[str, Any], rows: int, max_offset: int
) -> None:
    """A row of 7 taps of 9 channels is an interval: the last of 7 rows is so far from the first."""
    best = joined(found(9, (7, 7), (448, 448), **given)[1], Mode.TF32)
    assert (best.rows, best.max_offset) == (rows, max_offset)


@pytest.mark.parametrize("mode", [Mode.TF32, Mode.FAITHFUL])
def test_many_channels_are_joined_where_it_is_much_less_work(mode: Mode) -> None:
    assert not joining(found(64, (3, 3), (56, 56))[1], mode)
    assert not joining(found(32, (3, 3), (56, 56))[1], mode)
    assert joining(found(34, (11, 7), (56, 56))[1], mode)
    _, depthwise = found(16, (3, 3), (56, 56), groups=16)
    assert not joining(depthwise, mode)


@pytest.mark.parametrize(
    ("channels", "width"), [(12, 16), (16, 16), (17, 32), (32, 32), (33, 64), (64, 64), (65, 64)]
)
def test_the_narrowest_intervals_that_hold_all_channels(channels: int, width: int) -> None:
    """Tap by tap; two parts of each value are packed in 128 bytes."""
    for kernel, given in (((3, 3), {}), ((3, 3), {"stride": 2}), ((3,), {}), ((2, 2, 2), {})):
        _, made = found(channels, kernel, (40,) * len(kernel), **given)
        expected = ConvolutionSchedule(Mode.TF32, 64, 4, width=width)
        with no_halos():
            assert schedule_of(made, Mode.TF32) == expected
        assert schedule_of(made, Mode.FAITHFUL).width == 64
    narrow = f", intervals of {width} channels" if width != 64 else ""
    assert str(expected) == f"mode tf32, 64 filters a tile{narrow}, vector width 4"


def test_few_channels_are_joined_where_taps_are_out_of_range() -> None:
    """Strides of the copy engine reach to 8: packing sees to those of rows that are joined."""
    assert joining(found(3, (1, 1), (400, 400), stride=(9, 1))[1], Mode.TF32)
    assert not joining(found(3, (1, 1), (400, 400), stride=(8, 1))[1], Mode.TF32)
    assert joining(found(24, (300, 1), (400, 400), stride=1)[1], Mode.TF32)


def test_narrow_intervals_take_less_time_by_the_estimate() -> None:
    call, made = found(32, (3, 3), (512, 512), padding=1)
    with mock.patch("opweld.plan.products.windows.by_halos", return_value=None):
        times = estimate_convolution(call, made, (), SM_90A, Conditions((("s0", 16),)))
        with mock.patch("opweld.plan.products.joined.WIDTHS", (64,)):
            wide = estimate_convolution(call, made, (), SM_90A, Conditions((("s0", 16),)))
    assert times.ours < 0.9 * wide.ours and times.library == wide.library


def test_a_convolution_of_16_channels_is_a_kernel_of_narrow_intervals() -> None:
    m = Make()
    y = conv(m, m.x("x", BATCH, 16, 224, 224), 64, (3, 3), padding=1)
    with no_halos():
        group = one(tail_of(m, y))
    assert "intervals of 16 channels" in str(group.schedule)
    (kernel,) = lower(Plan(plan_graph(), "sm_90a", (group,)))
    assert isinstance(kernel, Convolving) and (kernel.rows, kernel.width) == (0, 16)
    assert "intervals of 16 channels" in to_text(kernel)
    assert "op::WindowTiles<op::Tf32, 2, 64, 16>" in cuda_text((kernel,))


def stem(**given: Any) -> Group:
    m = Make()
    how = {"stride": 2, "padding": 3} | given
    return one(tail_of(m, conv(m, m.x("x", BATCH, 3, 224, 224), 64, (7, 7), **how)))


def test_a_stem_is_a_kernel() -> None:
    group = stem()
    assert group.schedule == ConvolutionSchedule(Mode.TF32, 64, 4, 2)
    assert "taps of 2 rows together" in str(group.schedule)
    assert group.convolution is not None and group.inputs[0].type.shape == (BATCH, 3, 224, 224)
    (kernel,) = lower(Plan(plan_graph(), "sm_90a", (group,)))
    assert isinstance(kernel, Convolving) and kernel.rows == 2
    assert "taps of 2 rows joined" in to_text(kernel)
    text = cuda_text((kernel,))
    assert "op::JoinedTiles<op::Tf32, 2, 64, 2>" in text
    assert "JoinedPixels" in text


def plan_graph() -> Any:
    m = Make()
    return planned(m.relu(m.x("x", BATCH, 3))).graph


def test_offsets_beyond_the_copy_engine_fall_back_to_the_library() -> None:
    """Rows that are packed are seen to; the axis in front of them is fetched tap by tap."""
    m = Make()
    far = conv(m, m.x("x", BATCH, 3, 64, 16, 16), 64, (3, 3, 3), dilation=(9, 1, 1))
    assert refusal(m.relu(far)).startswith(LIBRARY + "its windows")
    m = Make()
    tall = conv(m, m.x("x", BATCH, 3, 900, 400), 64, (300, 1))
    reasons = [group.reason for group in planned(m.relu(tall)).groups]
    assert LIBRARY + "its windows are out of the copy engine's range" in reasons


def test_the_estimate_of_a_stem() -> None:
    """cuDNN takes 0.29 ms with channels last (32 images; H200)."""
    call, made = found(3, (7, 7), (224, 224), stride=2, padding=3)
    times = estimate_convolution(call, made, (), SM_90A, Conditions((("s0", 32),)))
    assert 200 < times.library < 350 and times.ours < 150
    exact = estimate_convolution(call, made, (), SM_90A, Conditions((("s0", 32),)), Mode.FAITHFUL)
    assert exact.ours > times.ours


def test_without_leave_to_round_two_parts_are_packed() -> None:
    m = Make()
    y = conv(m, m.x("x", BATCH, 3, 224, 224), 64, (7, 7), stride=2, padding=3)
    group = one(tail_of(m, y), conditions=Conditions())
    assert isinstance(group.schedule, ConvolutionSchedule)
    assert group.schedule.mode is Mode.FAITHFUL and TF32.tf32_convolutions
