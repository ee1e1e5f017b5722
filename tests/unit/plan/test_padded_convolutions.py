"""Zeros that are put around an image before a convolution: its own padding, where it is ours."""

from __future__ import annotations

import pytest
from tests.unit.plan.convolving import conv, convolutions, one, planned, tail_of, transposed
from tests.unit.plan.plans import Make

from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.plan import Plan

BATCH, CHANNELS = 4, 64
# Before and after the axes of space.
AROUND = ((2, 1), (0, 3))


def padded(m: Make, around: tuple[tuple[int, int], ...] = AROUND, value: float = 0.0) -> Node:
    """An image, channels second, with `around` around its last axes."""
    x = m.x("x", BATCH, CHANNELS, 20, 24)
    every = ((0, 0),) * (4 - len(around)) + around
    before, after = zip(*every, strict=True)
    return m.pad(x, before, after, value)


def padding_of(*outputs: Node) -> tuple[int, ...]:
    group = one(*outputs)
    assert group.convolution is not None and group.convolution.x.op is Op.INPUT
    return group.convolution.padding


def pads(plan: Plan) -> int:
    """Groups that make a padding for others to read."""
    return sum(any(node.op is Op.PAD for node in group.outputs) for group in plan.groups)


def test_before_the_first_pixel() -> None:
    m = Make()
    assert padding_of(tail_of(m, conv(m, padded(m), 96, (3, 3)))) == (2, 0)


def test_with_the_padding_of_the_call() -> None:
    m = Make()
    assert padding_of(tail_of(m, conv(m, padded(m), 96, (3, 3), padding=(1, 2)))) == (3, 2)


def test_one_around_the_other() -> None:
    m = Make()
    x = m.pad(padded(m), (0, 0, 1, 1), (0, 0, 0, 0), 0)
    assert padding_of(tail_of(m, conv(m, x, 96, (3, 3)))) == (3, 1)


def test_nobody_computes_it() -> None:
    m = Make()
    assert pads(planned(tail_of(m, conv(m, padded(m), 96, (3, 3))))) == 0


def test_others_read_it() -> None:
    m = Make()
    x = padded(m)
    plan = planned(tail_of(m, conv(m, x, 96, (3, 3))), m.call(x))
    (group,) = convolutions(plan)
    assert group.convolution is not None and group.convolution.padding == (2, 0)
    assert pads(plan) == 1


def test_another_value_is_put_there() -> None:
    m = Make()
    plan = planned(tail_of(m, conv(m, padded(m, value=1.0), 96, (3, 3))))
    assert [g.convolution.padding for g in convolutions(plan) if g.convolution] == [(0, 0)]
    assert pads(plan) == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_images_and_channels_are_none_of_space(axis: int) -> None:
    m = Make()
    around = tuple((int(each == axis), 0) for each in range(4))
    plan = planned(tail_of(m, conv(m, padded(m, around), 96, (3, 3))))
    assert [g.convolution.padding for g in convolutions(plan) if g.convolution] == [(0, 0)]
    assert pads(plan) == 1


def test_what_is_behind_it_is_in_memory() -> None:
    """A kernel's result that nothing reads but the padding."""
    m = Make()
    y = m.exp(m.x("x", BATCH, CHANNELS, 20, 24))
    around = m.pad(y, (0, 0, 2, 0), (0, 0, 0, 0), 0)
    plan = planned(tail_of(m, conv(m, around, 96, (3, 3))))
    (group,) = convolutions(plan)
    made = {node.serial for each in plan.groups for node in each.outputs}
    assert group.convolution is not None and group.convolution.x.op is Op.EXP
    assert group.convolution.x.serial in made


def test_a_transposed_one_has_no_zeros_around() -> None:
    m = Make()
    plan = planned(tail_of(m, transposed(m, padded(m), 96, (4, 4), stride=2)))
    assert [g.convolution.padding for g in convolutions(plan) if g.convolution] == [(0, 0)]
    assert pads(plan) == 1
