"""What shares the walks over the rows of a reduction, and what does not."""

from __future__ import annotations

from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.graph import Node
from opweld.ir.plan import Conditions, Group, GroupKind, ReductionSchedule
from opweld.plan import make_plan
from opweld.plan.rows import LONG_ROW, Parallelism
from opweld.target import CPU, SM_90A


def groups_of(*outputs: Node, **sizes: int) -> list[Group]:
    """The fused groups, for the example sizes."""
    graph = plan_of(*outputs).graph
    plan = make_plan(graph, SM_90A, conditions=Conditions(sizes=tuple(sizes.items())))
    return [group for group in plan.groups if group.fused]


def walks_of(*outputs: Node, **sizes: int) -> list[int]:
    """The number of walks of each fused group, 0 for one that is no reduction."""
    return [group.rows.num_walks if group.rows else 0 for group in groups_of(*outputs, **sizes)]


def test_softmax_walks_three_times_over_a_row() -> None:
    m = Make()
    (group,) = groups_of(m.softmax(m.x("x", BATCH, 1000), 1))
    assert group.kind is GroupKind.REDUCTION and group.rows
    assert [[n.op.value for n in level] for level in group.rows.levels] == [["amax"], ["sum"]]
    assert group.rows.num_walks == 3
    assert group.rows.kept == (BATCH, 1) and group.rows.length == 1000
    assert group.reason == "5 operations on rows of 1000 elements in 3 passes"


def test_a_normalisation_with_weights_is_one_kernel() -> None:
    m = Make()
    x, weight, bias = m.x("x", BATCH, 24), m.w("weight", 24), m.w("bias", 24)
    assert walks_of(m.add(m.mul(m.standardised(x, 1), weight), bias)) == [3]


def test_what_comes_before_and_after_joins() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 24), m.x("y", BATCH, 24)
    mean = m.div(m.reduced("sum", m.mul(m.relu(x), y), 1), 24.0)
    assert walks_of(m.sqrt(m.reshape(mean, BATCH))) == [1]


def test_reductions_of_one_operand_share_its_walk() -> None:
    m = Make()
    x = m.x("x", BATCH, 24)
    least, most = m.reduced("amin", x, 1), m.reduced("amax", x, 1)
    assert walks_of(least, most) == [1]
    assert walks_of(m.reduced("sum", x, 1), m.exp(x)) == [1]


def test_reductions_over_different_axes_are_apart() -> None:
    m = Make()
    x = m.x("x", BATCH, 8, 24)
    assert walks_of(m.reduced("sum", x, 1), m.reduced("sum", x, 2)) == [1, 1]
    inner = m.reduced("sum", x, 2)
    assert walks_of(m.reduced("amax", inner, 1)) == [1, 1]


def test_a_row_is_read_at_its_own_place_alone() -> None:
    m = Make()
    x = m.x("x", 24, 24)
    total = m.reduced("sum", x, 1)
    assert walks_of(m.sub(x, total)) == [2]
    assert walks_of(m.sub(x, m.permute(total, 1, 0))) == [1, 0]
    assert walks_of(m.sub(x, m.flip(total, 0))) == [1, 0]


def test_an_intermediate_that_is_read_elsewhere_is_stored_on_the_way() -> None:
    m = Make()
    x = m.x("x", BATCH, 24)
    doubled = m.exp(x)
    (group,) = groups_of(doubled, m.reduced("sum", doubled, 1))
    assert [node.type.shape for node in group.outputs] == [(BATCH, 24), (BATCH, 1)]


def test_few_long_rows_are_cut_in_pieces_that_one_walk_folds() -> None:
    m = Make()
    x = m.x("x", 4, 16 * LONG_ROW)
    total = m.reduced("sum", m.mul(x, x), 1)
    (group,) = groups_of(m.sqrt(total))
    assert isinstance(group.schedule, ReductionSchedule) and group.schedule.cut
    assert group.reason.endswith("in one pass, each split over several blocks")
    # What each element of the result needs is known after the pieces are put together.
    assert walks_of(m.softmax(x, 1)) == [1, 0]
    # A walk that needs the whole of the one before is another kernel's.
    cubed = m.pow(m.sub(x, m.reduced("amax", x, 1)), 3.0)
    assert walks_of(m.reduced("sum", cubed, 1)) == [1, 1]


def test_many_rows_or_short_ones_are_whole() -> None:
    m = Make()
    for shape in ((1000, 16 * LONG_ROW), (4, 1000)):
        (group,) = groups_of(m.softmax(m.x("x", *shape), 1))
        assert isinstance(group.schedule, ReductionSchedule) and not group.schedule.cut


def test_examples_decide_where_sizes_are_symbolic() -> None:
    m = Make()
    total = m.softmax(m.x("x", BATCH, 16 * LONG_ROW), 1)
    assert [walks_of(total, s0=n) for n in (2, 4096)] == [[1, 0], [3]]


def test_what_one_walk_condenses_is_cut_where_the_launch_can_decide() -> None:
    m = Make()
    x = m.x("x", 1000, 1000)
    graph = plan_of(m.reduced("sum", x, 1), m.softmax(x, 0)).graph
    for target, expected in ((SM_90A, [True, False]), (CPU, [False, False])):
        groups = make_plan(graph, target).groups
        cut = [g.schedule.cut for g in groups if isinstance(g.schedule, ReductionSchedule)]
        assert cut == expected


def test_a_result_of_the_row_does_not_narrow_its_accesses() -> None:
    m = Make()
    (group,) = groups_of(m.reduced("argmax", m.x("x", 64, 1000), 1))
    assert group.schedule.lanes == 4, "its places are integers of 8 bytes"  # type: ignore[union-attr]


def test_neighbouring_rows_are_counted_by_the_block() -> None:
    rows = Parallelism(264)
    long = 2 * LONG_ROW
    assert rows.needs_pieces((long, 4096), (0,)), "32 blocks of columns"
    assert not rows.needs_pieces((long, 128 * 264), (0,))
    assert rows.needs_pieces((long, 0), (0,)), "no columns at all"
    assert rows.needs_pieces((LONG_ROW // 64 + 1, 64), (0,)), "few columns, which one block has"
    assert not rows.needs_pieces((LONG_ROW // 64, 64), (0,))
    assert not rows.needs_pieces((LONG_ROW // 64 + 1, 128 * 40), (0,)), "blocks enough"
    assert not rows.needs_pieces((264, long), (1,))
    assert not Parallelism().needs_pieces((1, long), (1,))


def test_a_row_of_several_multiprocessors_counts_as_several() -> None:
    alone, together = Parallelism(264), Parallelism(264, 8)
    for rows, length, pieces in (
        (66, 2 * LONG_ROW, (True, True)),
        (66, 4 * LONG_ROW, (True, False)),
    ):
        space = (rows, length)
        assert (alone.needs_pieces(space, (1,)), together.needs_pieces(space, (1,))) == pieces
    assert together.needs_pieces((66, 32 * LONG_ROW), (1,)), "longer than they keep"
    assert together.needs_pieces((66, BATCH * 4 * LONG_ROW), (1,)), "of unknown length"
    assert not together.needs_pieces((66, BATCH), (1,)), "short by what is typical"


def test_lanes_need_a_whole_number_of_packets() -> None:
    m = Make()
    lanes = [
        groups_of(m.reduced("sum", m.x("x", *shape), axis))[0].schedule.lanes  # type: ignore[union-attr]
        for shape, axis in (((BATCH, 24), 1), ((BATCH, 37), 1), ((24, 37), 0), ((37, 24), 0))
    ]
    assert lanes == [4, 1, 1, 4]


def test_a_product_and_a_reduction_are_apart() -> None:
    m = Make()
    product = m.product("mm", m.x("x", 4096, 4096), m.w("w", 4096, 4096), shape=(4096, 4096))
    kinds = [group.kind for group in groups_of(m.reduced("sum", m.relu(product), 1))]
    assert kinds == [GroupKind.CONTRACTION, GroupKind.REDUCTION]


def test_bytes_are_those_that_must_move() -> None:
    m = Make()
    (group,) = groups_of(m.softmax(m.x("x", 64, 1000), 1))
    assert group.estimate.bytes == 2 * 64 * 1000 * 4


def test_a_cpu_plan_is_the_same() -> None:
    m = Make()
    plan = make_plan(plan_of(m.softmax(m.x("x", BATCH, 1000), 1)).graph, CPU)
    assert [group.kind for group in plan.groups] == [GroupKind.REDUCTION]
