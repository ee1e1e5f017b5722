"""Convolutions of each channel by itself: their kernels, forms and layouts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.plan.convolving import TF32, conv, convolutions, planned
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.kernels.lifted import lifted
from opweld.ir.views import is_copy
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render.cuda.texts import cuda_text
from opweld.target import SM_80, SM_90A


def test_they_are_kernels_of_float32_on_all_gpus() -> None:
    for target in (SM_90A, SM_80):
        m = Make()
        y = conv(m, m.x("x", BATCH, 56, 56, 96), 96, (3, 3), last=True, groups=96, padding=1)
        (made,) = convolutions(make_plan(graph(m.relu(y)), target, conditions=TF32))
        assert made.schedule is not None
        assert str(made.schedule) == "mode faithful, each channel by itself, vector width 2"
        assert made.convolution is not None and made.convolution.windows.seen == 1


def test_their_input_has_its_channels_last() -> None:
    """By a copy, if need be, where what is behind goes along the channels: as threads do."""
    m = Make()
    y = conv(m, m.x("x", 32, 96, 56, 56), 96, (7, 7), groups=96, padding=3)
    plan = planned(m.reduced("mean", m.relu(y), 1))
    (made,) = convolutions(plan)
    assert made.convolution is not None and not made.convolution.in_planes
    assert is_copy(made.convolution.x) and made.convolution.axes == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("kernel", "filters", "given", "form"),
    [
        ((31,), 96, {"padding": 15}, "TapTiles<1, 1, 31, 1, 1, 1, 96>"),
        ((3, 3, 3), 96, {"stride": 2}, "TapTiles<3, 3, 3, 2, 2, 1, 96>"),
        ((3, 3, 3), 96, {"dilation": (1, 1, 2)}, "AnyTaps"),
        ((7, 7), 96, {"padding": 3}, "TapTiles<1, 7, 7, 1, 1, 1, 96>"),
        ((3, 3), 96, {"dilation": 2}, "TapTiles<1, 3, 3, 1, 1, 2, 96>"),
        ((3, 3), 96, {"dilation": (1, 2)}, "AnyTaps"),
        ((3, 3), 192, {}, "AnyTaps"),
        ((1, 65), 96, {"padding": (0, 32)}, "AnyTaps"),
    ],
    ids=str,
)
def test_tiles_are_made_for_the_taps(
    kernel: tuple[int, ...], filters: int, given: dict[str, Any], form: str
) -> None:
    m = Make()
    x = m.x("x", BATCH, *(56,) * len(kernel), 96)
    y = conv(m, x, filters, kernel, last=True, groups=96, **given)
    text = cuda_text(lower(make_plan(graph(m.relu(y)), SM_90A)))
    assert f"op::DepthwiseForm<op::{form}>" in text


def test_their_kernel_is_not_shared_by_layers_of_other_sizes() -> None:
    m = Make()
    y = conv(m, m.x("x", BATCH, 56, 56, 96), 96, (3, 3), last=True, groups=96, padding=1)
    (made,) = convolutions(planned(m.relu(y)))
    assert lifted(made) is None
