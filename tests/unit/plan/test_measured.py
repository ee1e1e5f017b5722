"""What measured rows change in a plan, what it says of them, and what may be tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.ir.expr import Size
from opweld.ir.graph import Graph
from opweld.ir.kernels.product import Mode
from opweld.ir.measured import Maker, Measured, PointwiseClass, ProductClass, Table
from opweld.ir.plan import Conditions, Group, GroupKind, Plan, PointwiseSchedule
from opweld.ir.types import DType
from opweld.plan import make_plan
from opweld.plan.tunable import tunables
from opweld.target import CPU, SM_80, SM_90A, Target

from .plans import BATCH, Make, graph

OWN, OTHER = PointwiseSchedule(4, 1, 128), PointwiseSchedule(4, 2, 256)
ORIGIN = ("NVIDIA H200", "2026-11-21", "2.11.0", "opweld tune x.py")
POINTWISE = PointwiseClass(DType.F32, 20, 2, 1, "memory")
PRODUCT = ProductClass(Mode.FAITHFUL, 10, 13, 13, 0, held=True, tail=True)


def row(shape, schedule, against, us=129.3, against_us=133.4, target="sm_90a") -> Measured:
    return Measured(target, shape, schedule, us, against, against_us, *ORIGIN)


def addition(rows, columns=1024, dtype: DType = DType.F32) -> Graph:
    m = Make()
    return graph(m.add(m.x("x", rows, columns, dtype=dtype), m.x("y", rows, columns, dtype=dtype)))


def linear(size: int, rows: Size = BATCH) -> Graph:
    m = Make()
    x, weight = m.x("x", rows, size), m.w("fc.weight", size, size)
    return graph(m.relu(m.product("linear", x, weight, shape=(rows, size))))


# The library is the faster one, by the estimate.
MANY_ROWS = linear(128, 8192)


def planned(g: Graph, *rows: Measured, target: Target = SM_90A, **sizes: int) -> Plan:
    conditions = Conditions(sizes=tuple(sizes.items()))
    return make_plan(g, target, conditions=conditions, table=Table(rows))


def only(plan: Plan) -> Group:
    (group,) = plan.groups
    return group


def test_a_row_gives_the_schedule_and_the_plan_says_so() -> None:
    g = addition(1024)
    plain, group = only(planned(g)), only(planned(g, row(POINTWISE, OTHER, OWN)))
    assert (plain.schedule, group.schedule) == (OWN, OTHER)
    assert group.reason == (
        f"{plain.reason}; vector width 4, 2 in flight, 256 threads: "
        "measured 2026-11-21 on NVIDIA H200: "
        "129 us against 133 us of vector width 4, 1 in flight, 128 threads"
    )
    assert group.estimate == plain.estimate
    assert replace(group, schedule=plain.schedule, reason=plain.reason) == plain


@pytest.mark.parametrize(
    ("g", "target"),
    [
        (addition(2048), SM_90A),
        (addition(1024), SM_80),
        (addition(1024, dtype=DType.F16), SM_90A),
    ],
)
def test_a_row_of_another_class_changes_nothing(g: Graph, target: Target) -> None:
    assert planned(g, row(POINTWISE, OTHER, OWN), target=target) == planned(g, target=target)


@pytest.mark.parametrize(
    ("rows", "served"), [(724, False), (725, True), (1448, True), (1449, False)]
)
def test_a_row_serves_its_neighbours(rows: int, served: bool) -> None:
    """2^20 elements up to a factor of the square root of two."""
    group = only(planned(addition(rows), row(POINTWISE, OTHER, OWN)))
    assert (group.schedule == OTHER) is served


def test_symbols_stand_for_their_examples() -> None:
    g, rows = addition(BATCH), row(replace(POINTWISE, elems=25), OTHER, OWN)
    assert only(planned(g, rows)).schedule == OWN
    assert only(planned(g, rows, s0=32768)).schedule == OTHER


def test_a_row_keeps_a_product_from_the_library() -> None:
    small = replace(PRODUCT, m=13, n=7, k=7)
    estimated = planned(MANY_ROWS)
    assert [group.kind for group in estimated.groups] == [GroupKind.LIBRARY, GroupKind.POINTWISE]
    group = only(planned(MANY_ROWS, row(small, Maker.OURS, Maker.LIBRARY, 9.12, 11.0)))
    assert group.kind is GroupKind.CONTRACTION
    assert group.reason.startswith(
        "a matrix product with the operation after it: measured 2026-11-21 on NVIDIA H200: "
        "9.12 us against 11 us of the library and a kernel for the rest"
    )


def test_a_row_gives_a_product_to_the_library() -> None:
    assert only(planned(linear(8192))).kind is GroupKind.CONTRACTION
    call, tail = planned(linear(8192), row(PRODUCT, Maker.LIBRARY, Maker.OURS, 500.0, 653.0)).groups
    assert (call.kind, tail.kind) == (GroupKind.LIBRARY, GroupKind.POINTWISE)
    assert call.reason == (
        "a matrix product that gains nothing as a kernel of ours: measured 2026-11-21 on "
        "NVIDIA H200: 500 us against 653 us of a kernel of ours"
    )


def test_a_row_that_agrees_replaces_the_estimate_in_the_reason() -> None:
    group = only(planned(linear(8192), row(PRODUCT, Maker.OURS, Maker.LIBRARY, 571.0, 2835.0)))
    assert "measured 2026-11-21 on NVIDIA H200: 571 us against 2835 us of the lib" in group.reason
    assert "about" not in group.reason and "are kept of the weight" in group.reason


def test_what_is_tried_wins_over_rows_and_is_not_spoken_of() -> None:
    rows = (row(POINTWISE, OTHER, OWN), row(PRODUCT, Maker.OURS, Maker.LIBRARY))
    tried = PointwiseSchedule(8, 1, 512)
    table = Table(rows, ((POINTWISE, tried), (PRODUCT, Maker.LIBRARY)))
    group = only(make_plan(addition(1024), SM_90A, table=table))
    assert group.schedule == tried and "measured" not in group.reason
    call, _ = make_plan(linear(8192), SM_90A, table=table).groups
    assert call.kind is GroupKind.LIBRARY


def found(g: Graph, target: Target, *rows: Measured):
    table = Table(rows)
    plan = make_plan(g, target, table=table)
    return tunables(g, plan, target, Conditions(), table)


def test_what_may_be_tried_for_a_pointwise_group() -> None:
    (one,) = found(addition(1024), SM_90A)
    assert (one.shape, one.groups, one.current) == (POINTWISE, ("k1_add",), OWN)
    assert one.schedules[0] == OWN and len(set(one.schedules)) == len(one.schedules) == 15
    assert {s.lanes for s in one.schedules} == {4, 8}
    assert {s.threads for s in one.schedules} == {128, 256, 512}
    assert {s.vectors for s in one.schedules if s.lanes == 8} == {1, 2}
    (one,) = found(addition(1024), SM_90A, row(POINTWISE, OTHER, OWN))
    assert one.current == one.schedules[0] == OTHER and OWN in one.schedules
    (one,) = found(addition(1024), CPU)
    assert [s.lanes for s in one.schedules] == [16, 1]


def test_groups_of_one_class_are_one() -> None:
    m = Make()
    x, y = m.x("x", 1024, 1024), m.x("y", 1024, 1024)
    called = m.call(m.add(x, y), target="cumsum")
    first, second = found(graph(m.mul(called, x), m.neg(m.call(x, target="sort"))), SM_90A)
    assert first.shape == POINTWISE and first.groups == ("k1_add", "k2_mul")
    assert second.groups == ("k3_neg",) and second.shape == replace(POINTWISE, reads=1)


@pytest.mark.parametrize(
    ("made", "current"), [(MANY_ROWS, Maker.LIBRARY), (linear(8192), Maker.OURS)]
)
def test_either_may_make_a_product(made: Graph, current: Maker) -> None:
    one = found(made, SM_90A)[-1]
    assert one.shape.kind == "contraction" and one.current is current
    assert one.schedules == (current, *({*Maker} - {current}))
    assert one.groups == (("linear",) if current is Maker.LIBRARY else ("k1_linear_relu",))


def test_a_product_that_no_kernel_makes_is_not_tried() -> None:
    g = linear(8192)
    without = replace(SM_90A, products=frozenset({Mode.TF32}))
    assert [one.shape.kind for one in found(g, without)] == ["pointwise"]
