"""Which long rows all multiprocessors keep together."""

from __future__ import annotations

import pytest
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.graph import Node
from opweld.ir.kernels.reduction import Reduction
from opweld.ir.plan import Plan, ReductionSchedule
from opweld.lower import lower
from opweld.render.cuda.cooperative_rows import DeviceInstance, device_instance
from opweld.render.traffic import with_traffic
from opweld.target import SM_90A

LONG = 2**20


def _scaled(length: int, fold: str = "sum", rows: object = BATCH) -> Plan:
    m = Make()
    x = m.x("x", rows, length)
    return plan_of(m.div(x, m.reduced(fold, x, 1)))


def _blocks(plan: Plan) -> list[int]:
    """Of each group: how many blocks have its rows together."""
    found = [group.schedule for group in plan.groups]
    return [s.device_blocks for s in found if isinstance(s, ReductionSchedule)]


@pytest.mark.parametrize("fold", ["sum", "amax", "amin"])
@pytest.mark.parametrize("length", [2**19 + 4, LONG, 2**21])
def test_long_rows_are_kept_by_all_multiprocessors(length: int, fold: str) -> None:
    plan = _scaled(length, fold)
    assert len(plan.groups) == 1 and _blocks(plan) == [SM_90A.multiprocessors]
    assert plan.groups[0].reason.endswith(
        "between which all multiprocessors may keep a row together"
    )
    (reduction,) = lower(plan)
    assert isinstance(reduction, Reduction) and device_instance(reduction) is not None


def test_rows_that_fewer_keep_and_longer_ones_are_not() -> None:
    assert _blocks(_scaled(2**19)) == [0]
    assert _blocks(_scaled(2**22)) == [0] and len(_scaled(2**22).groups) == 2
    few = _scaled(LONG, rows=16)
    assert _blocks(few) == [0] and len(few.groups) == 2


def test_what_takes_longer_to_fold_is_not() -> None:
    m = Make()
    x = m.x("x", BATCH, LONG)
    assert set(_blocks(plan_of(m.standardised(x, 1)))) == {0}
    assert set(_blocks(plan_of(m.softmax(x, 1)))) == {0}


def test_what_two_tensors_are_computed_from_is_not() -> None:
    m = Make()
    both = m.mul(m.x("x", BATCH, LONG), m.x("y", BATCH, LONG))
    assert set(_blocks(plan_of(m.div(both, m.reduced("sum", both, 1))))) == {0}


def _instance(*outputs: Node) -> DeviceInstance | None:
    (reduction,) = lower(plan_of(*outputs))
    assert isinstance(reduction, Reduction)
    return device_instance(reduction)


def test_a_walk_that_reads_two_places_is_not() -> None:
    m = Make()
    x = m.x("x", BATCH, LONG)
    both = m.add(x, m.flip(x, 1))
    assert _instance(m.div(both, m.reduced("sum", both, 1))) is None


def test_weights_stay_on_the_chip_as_far_as_they_fit() -> None:
    m = Make()
    x = m.x("x", BATCH, 2**21)
    weighted = m.mul(m.div(x, m.reduced("sum", x, 1)), m.w("w", 2**21))
    assert _instance(weighted) == DeviceInstance(16, 38, 2, 16)
    assert _instance(m.add(weighted, m.w("b", 2**21))) == DeviceInstance(16, 36, 2, 9)


def test_a_fold_alone_and_three_walks_are_not() -> None:
    m = Make()
    x = m.x("x", BATCH, LONG)
    assert _blocks(plan_of(m.reduced("sum", x, 1))) == [0]
    centred = m.sub(x, m.reduced("amax", x, 1))
    plan = plan_of(m.div(centred, m.reduced("sum", centred, 1)))
    assert [group.rows.num_walks for group in plan.groups if group.rows] == [2, 2]


@pytest.mark.parametrize(("num_rows", "kernels"), [(16, 2), (512, 1)])
def test_what_is_computed_before_is_computed_again_for_few_rows(
    num_rows: int, kernels: int
) -> None:
    m = Make()
    x = m.relu(m.x("x", num_rows, LONG))
    plan = plan_of(m.div(x, m.reduced("sum", x, 1)))
    found = [[node.op.value for node in group.nodes] for group in plan.groups]
    assert len(found) == kernels and all(nodes.count("relu") == 1 for nodes in found)


def test_of_known_rows_only_one_read_is_counted() -> None:
    m = Make()
    x = m.x("x", 512, LONG)
    plan = plan_of(m.div(x, m.reduced("sum", x, 1)))
    counted = with_traffic(plan, lower(plan), SM_90A)
    traffic = counted.groups[0].traffic
    assert traffic is not None and traffic.moved_bytes == 2 * 4 * 512 * LONG
