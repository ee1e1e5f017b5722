"""Whether the host sets the time of a graph's convolutions, and what is a kernel of ours then."""

from __future__ import annotations

import pytest
from tests.unit.plan.convolving import LIBRARY, TF32, conv, convolutions, planned, tail_of
from tests.unit.plan.plans import Make, graph

from opweld.ir.graph import Node
from opweld.ir.plan import Plan
from opweld.plan.products.host_bound import is_host_bound
from opweld.target import CPU, SM_90A

# Of 7x7 positions the library's kernels are the faster ones on the device.
DEEP = 512


def deep(m: Make, size: int, batch: int, layers: int = 6) -> Node:
    x = m.x("x", batch, DEEP, size, size)
    for _ in range(layers):
        x = m.relu(conv(m, x, DEEP, (3, 3), padding=1))
    return tail_of(m, x)


def of(size: int, batch: int) -> Plan:
    return planned(deep(Make(), size, batch))


@pytest.mark.parametrize(
    ("size", "batch", "bound"), [(7, 1, True), (7, 8, True), (56, 32, False), (112, 8, False)]
)
def test_by_the_time_of_the_device(size: int, batch: int, bound: bool) -> None:
    assert is_host_bound(graph(deep(Make(), size, batch)), SM_90A, TF32) == bound


def test_not_for_a_cpu() -> None:
    assert not is_host_bound(graph(deep(Make(), 7, 1)), CPU, TF32)


def test_convolutions_that_only_the_library_computes_count() -> None:
    m = Make()
    x = m.x("x", 1, 64, 8, 8)
    assert is_host_bound(graph(tail_of(m, conv(m, x, 64, (3, 3), groups=2))), SM_90A, TF32)


def test_kernels_of_ours_cost_the_host_less() -> None:
    assert len(convolutions(of(7, 8))) == 6


def test_the_plan_says_that_the_host_decides() -> None:
    (said, *_) = {group.reason for group in convolutions(of(7, 8))}
    assert "where the host takes longer to call than the device to compute" in said
    (said, *_) = {group.reason for group in convolutions(of(56, 32))}
    assert "host" not in said and not said.startswith(LIBRARY)
