"""What is computed behind convolutions, in the order of channels last."""

from __future__ import annotations

import pytest
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.attrs import CallAttrs, Operand, ReduceAttrs
from opweld.ir.graph import Graph, Node
from opweld.ir.ops import Op
from opweld.ir.plan import NO_CONDITIONS
from opweld.ir.types import DType, TensorType
from opweld.plan.layouts import in_channels_last
from opweld.target import CPU, SM_90A


def convolution(m: Make, x: Node, channels: int) -> Node:
    batch, depth, height, width = x.type.shape
    weight = m.w(f"weight{x.serial}", channels, depth, 1, 1)
    result = TensorType(DType.F32, (batch, channels, height, width))
    attrs = CallAttrs("aten.conv2d.default", (Operand(0), Operand(1)), (), (result,), "")
    return m.arena.call((x, weight), attrs)


def two(m: Make) -> Node:
    """Of (batch, 16, 6, 5)."""
    return convolution(m, m.relu(convolution(m, m.x("x", BATCH, 2, 6, 5), 16)), 16)


def condensed(found: Graph, op: Op) -> list[tuple[int, ...]]:
    return [node.attrs.axes for node in found.nodes() if node.op is op]


def moved(*outputs: Node) -> Graph:
    return in_channels_last(graph(*outputs), SM_90A, NO_CONDITIONS)


def test_what_is_between_convolutions_is_in_their_order() -> None:
    m = Make()
    mean = m.reduced("mean", two(m), 2, 3)
    found = moved(mean)
    relu, *_ = (node for node in found.nodes() if node.op is Op.RELU)
    assert relu.type.shape == (BATCH, 6, 5, 16)
    assert condensed(found, Op.MEAN) == [(1, 2)]
    assert found.outputs[0].type == mean.type
    same = graph(mean)
    assert in_channels_last(same, CPU, NO_CONDITIONS) is same


@pytest.mark.parametrize(("op", "axes"), [("argmax", (1, 2)), ("sum", (1, 3))])
def test_places_are_counted_in_the_users_order(op: str, axes: tuple[int, ...]) -> None:
    """Sums may be taken in any: where channels come last the axes (1, 2) are (3, 1)."""
    m = Make()
    found = moved(m.reduced(op, two(m), 1, 2))
    assert condensed(found, Op(op)) == [axes]


def test_the_first_of_equal_elements_stays_the_first() -> None:
    m = Make()
    largest = m.arena.make(Op.AMAX, two(m), attrs=ReduceAttrs((1, 2), first=True))
    assert condensed(moved(largest), Op.AMAX) == [(1, 2)]
