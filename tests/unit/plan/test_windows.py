"""What is computed anew for every window that reads it, and what is stored; who folds a window."""

from __future__ import annotations

import pytest
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.plan import Group, ReductionSchedule
from opweld.target import CPU, SM_90A, Target

OVERLAPPING, HALF, APART = (3, 1, 1, 1), (3, 2, 1, 1), (2, 2, 0, 1)


def pooled(m: Make, x: Node, window: tuple[int, int, int, int], op: str = "amax") -> Node:
    outside = (0.0 if op == "sum" else float("-inf")) if window[2] else None
    return m.reduced(op, m.windows(x, window, window, outside=outside), 0, 1)


def groups(*outputs: Node, target: Target = SM_90A) -> list[list[str]]:
    found = [group.nodes for group in plan_of(*outputs, target=target).groups if group.fused]
    computing = {Op.RELU, Op.GELU, Op.AMAX, Op.ADD, Op.MUL, Op.SUM}
    return [[node.op.value for node in nodes if node.op in computing] for nodes in found]


@pytest.mark.parametrize(
    ("op", "window", "target", "kept"),
    [
        ("relu", OVERLAPPING, SM_90A, False),
        ("relu", OVERLAPPING, CPU, False),
        ("gelu", OVERLAPPING, SM_90A, True),
        ("gelu", HALF, SM_90A, False),
        ("gelu", HALF, CPU, True),
        ("gelu", APART, CPU, False),
    ],
)
def test_what_is_dear_is_stored_where_windows_overlap(
    op: str, window: tuple[int, int, int, int], target: Target, kept: bool
) -> None:
    m = Make()
    x = getattr(m, op)(m.x("x", BATCH, 8, 32, 32))
    together = [[op, "amax"]]
    assert groups(pooled(m, x, window), target=target) == ([[op], ["amax"]] if kept else together)


def test_many_cheap_operations_are_dear_together() -> None:
    m = Make()
    x, weight, bias = m.x("x", BATCH, 8, 32, 32), m.w("weight", 8, 1, 1), m.w("bias", 8, 1, 1)
    y = m.relu(m.add(m.mul(x, weight), bias))
    assert groups(pooled(m, y, OVERLAPPING)) == [["mul", "add", "relu", "amax"]]
    assert groups(pooled(m, y, OVERLAPPING), target=CPU) == [["mul", "add", "relu"], ["amax"]]


def test_what_others_read_is_read_and_what_follows_joins() -> None:
    m = Make()
    y = m.relu(m.x("x", BATCH, 8, 32, 32))
    seen = m.mul(m.reshape(pooled(m, y, APART), BATCH, 8, 16, 16), 2.0)
    assert groups(seen, y) == [["relu"], ["amax", "mul"]]


def test_windows_of_pointwise_work_are_weighed_too() -> None:
    m = Make()
    x = m.x("x", BATCH, 64)
    cheap, dear = (m.windows(f(x), (33, 1, 0, 1)) for f in (m.relu, m.gelu))
    assert groups(m.mul(cheap, 2.0), target=CPU) == [["relu"], ["mul"]]
    assert groups(m.mul(m.window(m.gelu(x), 1, 32, 2, 2), 2.0)) == [["gelu", "mul"]]
    assert groups(m.mul(dear, 2.0)) == [["gelu"], ["mul"]]


def group_of(node: Node) -> Group:
    (group,) = plan_of(node).groups
    return group


@pytest.mark.parametrize(
    ("width", "op", "alone"),
    [(31, "amax", True), (33, "amax", False), (16, "sum", True), (17, "sum", False)],
)
def test_long_windows_are_a_teams(width: int, op: str, alone: bool) -> None:
    m = Make()
    schedule = group_of(pooled(m, m.x("x", BATCH, 99, 98), (width, 1, 0, 1), op)).schedule
    assert isinstance(schedule, ReductionSchedule)
    assert schedule.alone is alone and schedule.cut is not alone


def test_rows_that_are_no_windows_are_a_teams() -> None:
    m = Make()
    schedule = group_of(m.reduced("amax", m.x("x", BATCH, 3, 64), 1)).schedule
    assert isinstance(schedule, ReductionSchedule) and not schedule.alone


@pytest.mark.parametrize(
    ("rows", "window", "op", "lanes"),
    [
        (31, OVERLAPPING, "amax", 8),
        (32, HALF, "amax", 4),
        (33, HALF, "amax", 4),
        (17, HALF, "amax", 2),
        (5, HALF, "amax", 1),
        (3, HALF, "amax", 2),
        (32, APART, "amax", 1),
        (31, OVERLAPPING, "argmax", 4),
        (31, (6, 1, 1, 1), "sum", 8),
        (31, (16, 1, 1, 1), "sum", 4),
    ],
)
def test_a_thread_has_windows_below_each_other_where_they_overlap(
    rows: int, window: tuple[int, int, int, int], op: str, lanes: int
) -> None:
    """As many as leave few that two threads fold, are not too long a text, and have registers."""
    m = Make()
    schedule = group_of(pooled(m, m.x("x", BATCH, rows, 64), window, op)).schedule
    assert isinstance(schedule, ReductionSchedule)
    assert (schedule.lanes, schedule.layers) == (lanes, 1)


@pytest.mark.parametrize(
    ("window", "lanes", "layers"),
    [(OVERLAPPING, 4, 4), (HALF, 4, 2), (APART, 1, 1), ((6, 1, 0, 1), 4, 1), ((4, 2, 2, 2), 4, 4)],
)
def test_a_thread_has_windows_behind_each_other(
    window: tuple[int, ...], lanes: int, layers: int
) -> None:
    m = Make()
    x = m.x("x", BATCH, 24, 24, 36)
    outside = float("-inf") if window[2] else None
    seen = m.windows(x, window, window, window, outside=outside)  # type: ignore[arg-type]
    schedule = group_of(m.reduced("amax", seen, 0, 1, 2)).schedule
    assert isinstance(schedule, ReductionSchedule)
    assert (schedule.lanes, schedule.layers) == (lanes, layers)
