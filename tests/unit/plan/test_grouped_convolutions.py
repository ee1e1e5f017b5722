"""Convolutions in groups of several channels: how many groups are one product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.plan.convolving import TF32, conv, one, planned, refusal, tail_of
from tests.unit.plan.plans import BATCH, Make

from opweld.ir.kernels.convolution import Convolution, Convolving
from opweld.ir.kernels.product import Mode
from opweld.ir.plan import ConvolutionSchedule
from opweld.ir.text import to_text
from opweld.lower import lower
from opweld.plan.products.joined import joined_groups
from opweld.plan.products.windows import convolution_of
from opweld.render.cuda.products.convolution import convolution_pieces, convolution_text


def made(
    channels: int, filters: int, groups: int, kernel: tuple[int, ...] = (3, 3), **given: Any
) -> Convolution:
    m = Make()
    x = m.x("x", BATCH, channels, 28, 28)
    return convolution_of(conv(m, x, filters, kernel, groups=groups, padding=1, **given))


@pytest.mark.parametrize("mode", [Mode.TF32, Mode.FAITHFUL])
@pytest.mark.parametrize(
    ("channels", "filters", "groups"),
    [(128, 128, 32), (256, 256, 32), (1024, 1024, 32), (240, 240, 3), (96, 256, 2), (30, 45, 15)],
)
def test_products_are_whole_intervals_and_tiles_or_all(
    channels: int, filters: int, groups: int, mode: Mode
) -> None:
    found = joined_groups(made(channels, filters, groups), mode)
    assert groups % found.groups == 0
    if found.groups < groups:
        assert channels // groups * found.groups % found.width == 0
        assert filters // groups * found.groups % found.columns == 0
    assert found.intervals == -(-(channels // groups * found.groups) // found.width)


def test_as_many_are_joined_as_fill_a_tile() -> None:
    """Of more, most of what is multiplied would be zeros."""
    assert joined_groups(made(256, 256, 32), Mode.TF32).groups == 8
    assert joined_groups(made(2048, 2048, 32), Mode.TF32).groups == 1


def test_wide_tiles_where_a_group_has_as_many_filters() -> None:
    """One of 128 takes less than two of 64, which read the same pixels."""
    found = joined_groups(made(256, 512, 4), Mode.TF32)
    assert (found.groups, found.columns, found.width) == (1, 128, 64)


def test_from_the_plan_to_the_text() -> None:
    m = Make()
    y = conv(m, m.x("x", BATCH, 256, 28, 28), 256, (3, 3), groups=32, padding=1)
    plan = planned(tail_of(m, y))
    group = one(tail_of(m, y))
    assert isinstance(group.schedule, ConvolutionSchedule)
    assert "8 groups a product" in str(group.schedule)
    (kernel,) = (each for each in lower(plan) if isinstance(each, Convolving))
    assert kernel.groups == (32, 8) and kernel.windows.seen == 8
    assert "32 groups, 8 of them a product" in to_text(kernel)
    assert "op::GroupTiles<op::WindowTiles<op::Tf32, 2, 64>, 32, 8>" in convolution_text(kernel)
    assert {"GroupTiles", "WindowTiles"} <= convolution_pieces(kernel)


def test_under_autocast_they_stay_the_librarys() -> None:
    m = Make()
    y = conv(m, m.x("x", BATCH, 64, 28, 28), 64, (3, 3), groups=2)
    reason = refusal(y, conditions=replace(TF32, autocast=True))
    assert "autocast casts its operands" in reason
