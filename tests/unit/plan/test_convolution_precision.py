"""Convolutions are in TF32 where torch's flags allow it and where that saves time."""

from __future__ import annotations

import pytest
from tests.unit.plan.convolving import IMAGE, TF32, conv, convolutions, planned, tail_of
from tests.unit.plan.plans import BATCH, Make

from opweld.ir.graph import Node
from opweld.ir.kernels.product import Mode
from opweld.ir.plan import Conditions, ConvolutionSchedule


def modes(result: Node, conditions: Conditions = TF32) -> list[Mode]:
    """Of the convolutions that are kernels of ours."""
    schedules = [group.schedule for group in convolutions(planned(result, conditions=conditions))]
    assert all(isinstance(each, ConvolutionSchedule) for each in schedules)
    return [each.mode for each in schedules if isinstance(each, ConvolutionSchedule)]


def transformer(layers: int, width: int = 768) -> Node:
    """16x16 patches, and linear layers of each."""
    m = Make()
    y = conv(m, m.x("x", BATCH, 3, 224, 224), width, (16, 16), stride=16)
    x = m.permute(m.reshape(y, BATCH, width, 196), 0, 2, 1)
    for layer in range(layers):
        weight = m.w(f"fc{layer}.weight", width, width)
        x = m.tanh(m.product("linear", x, weight, shape=(BATCH, 196, width)))
    return m.reduced("mean", x, 1)


def two_convolutions(channels: int) -> Node:
    m = Make()
    y = m.relu(conv(m, m.x("x", *IMAGE), channels, (3, 3), padding=1))
    return tail_of(m, conv(m, y, channels, (3, 3), padding=1))


@pytest.mark.parametrize("batch", [1, 2, 64])
def test_patches_of_a_transformer_are_as_exact_as_float32(batch: int) -> None:
    conditions = Conditions((("s0", batch),), tf32_convolutions=True)
    assert modes(transformer(48), conditions) == [Mode.FAITHFUL]


@pytest.mark.parametrize("batch", [2, 64])
def test_patches_that_take_most_of_the_time_are_in_tf32(batch: int) -> None:
    conditions = Conditions((("s0", batch),), tf32_convolutions=True)
    assert modes(transformer(1), conditions) == [Mode.TF32]


def test_a_network_of_convolutions_is_in_tf32() -> None:
    assert modes(two_convolutions(64)) == [Mode.TF32] * 2


def test_where_flags_forbid_it_none_is() -> None:
    for result in (transformer(1), two_convolutions(64)):
        assert set(modes(result, Conditions())) == {Mode.FAITHFUL}


def test_products_in_tf32_take_less_of_the_time() -> None:
    """So that what convolutions save counts for more."""
    sizes = (("s0", 64),)
    exact = Conditions(sizes, tf32_convolutions=True)
    loose = Conditions(sizes, tf32=True, tf32_convolutions=True)
    found = [(modes(transformer(n), exact), modes(transformer(n), loose)) for n in range(1, 24)]
    assert ([Mode.FAITHFUL], [Mode.TF32]) in found
    assert ([Mode.TF32], [Mode.FAITHFUL]) not in found
