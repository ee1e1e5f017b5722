"""What shares the one walk of a scan, and what does not."""

from __future__ import annotations

from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.graph import Node
from opweld.ir.plan import Group, GroupKind, ReductionSchedule
from opweld.ir.types import DType
from opweld.target import CPU, SM_90A


def groups_of(*outputs: Node) -> list[Group]:
    return [group for group in plan_of(*outputs).groups if group.fused]


def kinds(*outputs: Node) -> list[str]:
    return [group.kind.value for group in groups_of(*outputs)]


def test_what_comes_before_and_after_joins() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 24), m.x("y", BATCH, 24)
    masked = m.mul(m.relu(x), y)
    (group,) = groups_of(m.sqrt(m.sub(m.scanned("cumsum", masked, 1), masked)), m.exp(y))
    assert group.kind is GroupKind.SCAN and group.rows
    assert [[n.op.value for n in level] for level in group.rows.levels] == [["cumsum"]]
    assert group.rows.axes == (1,) and group.rows.num_rows == BATCH and group.rows.length == 24
    assert group.reason == "6 operations on rows of 24 elements that are scanned in one pass"


def test_scans_along_one_axis_in_one_way_share_a_walk() -> None:
    m = Make()
    x = m.x("x", BATCH, 24)
    assert kinds(*(m.scanned(op, x, 1) for op in ("cumsum", "cummax", "cummax_place"))) == ["scan"]
    assert kinds(m.scanned("cumsum", x, 1), m.scanned("cumsum", x, 0)) == ["scan"] * 2
    ways = (m.scanned("cumsum", x, 1, reverse=way) for way in (False, True))
    assert kinds(*ways) == ["scan"] * 2
    ways = (m.scanned("cumsum", x, 1, exclusive=way) for way in (False, True))
    assert kinds(*ways) == ["scan"] * 2


def test_a_scan_of_a_scan_is_another_walk() -> None:
    m = Make()
    once = m.scanned("cumsum", m.x("x", BATCH, 24), 1)
    assert kinds(m.scanned("cumsum", m.exp(once), 1)) == ["scan", "scan"]


def test_reductions_are_apart() -> None:
    m = Make()
    x = m.x("x", BATCH, 24)
    assert kinds(m.scanned("cumsum", m.softmax(x, 1), 1)) == ["reduction", "scan"]
    scanned = m.scanned("cumsum", x, 1)
    assert kinds(m.reduced("sum", scanned, 1)) == ["scan", "reduction"]
    assert sorted(kinds(scanned, m.reduced("sum", x, 1))) == ["reduction", "scan"]


def test_what_is_read_elsewhere_than_at_its_element_is_stored() -> None:
    m = Make()
    scanned = m.scanned("cumsum", m.x("x", BATCH, 24), 1)
    assert kinds(m.exp(m.flip(scanned, 1))) == ["scan", "pointwise"]
    assert kinds(m.add(m.reshape(scanned, BATCH, 24, 1), m.x("y", 24))) == ["scan", "pointwise"]


def test_operands_may_be_moved_and_joined() -> None:
    m = Make()
    zeros = m.expand(m.const(0.0), BATCH, 1)
    joined = m.cat(1, zeros, m.flip(m.x("x", BATCH, 24), 1))
    assert kinds(m.scanned("cumsum", joined, 1)) == ["scan"]
    turned = m.permute(m.x("z", 24, BATCH), 1, 0)
    assert kinds(m.scanned("cumsum", turned, 1)) == ["scan"]


def test_lanes_are_those_of_the_widest_element() -> None:
    m = Make()
    x = m.x("x", BATCH, 64)
    (group,) = groups_of(m.scanned("cumsum", x, 1))
    assert group.schedule == ReductionSchedule(4, SM_90A.reduction_threads, cut=False)
    (group,) = groups_of(m.scanned("cummax_place", x, 1))
    assert group.schedule == ReductionSchedule(2, SM_90A.reduction_threads, cut=False)
    (group,) = groups_of(m.scanned("cumsum", m.x("o", BATCH, 63), 1))
    assert group.schedule == ReductionSchedule(1, SM_90A.reduction_threads, cut=False)
    across = m.scanned("cumsum", m.x("h", BATCH, 5, 64, dtype=DType.F64), 1)
    (group,) = groups_of(across)
    assert group.schedule == ReductionSchedule(2, SM_90A.reduction_threads, cut=False)


def test_few_long_rows_are_cut() -> None:
    m = Make()
    (long,) = groups_of(m.scanned("cumsum", m.x("x", 1 << 24), 0))
    (many,) = groups_of(m.scanned("cumsum", m.x("y", 1 << 14, 1 << 16), 1))
    assert isinstance(long.schedule, ReductionSchedule) and long.schedule.cut
    assert isinstance(many.schedule, ReductionSchedule) and not many.schedule.cut
    assert long.reason.endswith("in one pass, each split over several blocks")
    plan = plan_of(m.scanned("cumsum", m.x("z", 1 << 24), 0), target=CPU)
    assert [group.schedule.cut for group in plan.groups] == [True]  # type: ignore[union-attr]


def test_a_scan_moves_each_element_once() -> None:
    m = Make()
    x, y = m.x("x", 8, 32), m.x("y", 8, 32)
    (group,) = groups_of(m.scanned("cumsum", m.mul(x, y), 1))
    assert group.estimate.bytes == 3 * 4 * 8 * 32 and group.estimate.limit == "memory"
