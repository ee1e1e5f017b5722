"""Lowered reductions compute what the graph means, in the walks that are expected."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from tests.plan_meaning import run_plan
from tests.random_graphs import (
    assert_close_to,
    batches_of,
    double,
    exact_and_errors,
    feeds_of,
    graphs,
)
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.check import check
from opweld.ir.graph import Graph, Node
from opweld.ir.kernels.kernel import Access, Load, RowScalar
from opweld.ir.kernels.reduction import Folding, Reduction
from opweld.ir.ops import Op
from opweld.lower import lower
from opweld.plan import make_plan, rows
from opweld.target import CPU, SM_90A, Target


def lowered(*outputs: Node) -> Folding:
    """The contiguous folding of the only group."""
    (found,) = lower(plan_of(*outputs))
    assert isinstance(found, Reduction)
    check(found)
    return found.contiguous


def test_softmax_is_three_walks_with_scalars_of_the_row_between() -> None:
    m = Make()
    folding = lowered(m.softmax(m.x("x", BATCH, 1000), 1))
    folds = [[(fold.name, fold.op) for fold in step.walk.folds] for step in folding.steps]
    assert folds == [[("amax_1", Op.AMAX)], [("sum_1", Op.SUM)], []]
    assert [step.once for step in folding.steps] == [None] * 3
    last = folding.steps[-1].walk.kernel
    given = [d.name for d in last.definitions if isinstance(d, RowScalar)]
    assert given == ["amax_1", "sum_1"]
    assert [store.buffer for store in last.stores] == ["result"]
    assert not folding.across and folding.lanes == 4


def test_what_is_of_the_row_is_computed_once() -> None:
    m = Make()
    folding = lowered(m.standardised(m.x("x", BATCH, 24), 1))
    once = [step.once.kernel.element if step.once else None for step in folding.steps]
    assert once[0] and [let.op for let in once[0].body] == [Op.DIV]
    assert once[1] and [let.op for let in once[1].body] == [Op.DIV, Op.ADD, Op.RSQRT]
    assert once[2] is None
    last = folding.steps[-1].walk.kernel.element
    assert [let.op for let in last.body] == [Op.SUB, Op.MUL]


def test_neighbouring_axes_become_one_loop() -> None:
    m = Make()
    along = lowered(m.reduced("sum", m.x("x", 3, 5, 4, 8), 2, 3))
    assert [loop.extent for loop in along.kept] == [15]
    assert [loop.extent for loop in along.reduced] == [32]
    across = lowered(m.reduced("sum", m.x("x", 3, 5, 4, 8), 1))
    assert [loop.extent for loop in across.kept] == [3, 32] and across.across
    apart = lowered(m.reduced("sum", m.x("x", 3, 5, 4, 8), 0, 2, 3))
    assert [loop.extent for loop in apart.kept] == [5]
    assert [loop.extent for loop in apart.reduced] == [3, 32]


def test_an_operand_of_the_rows_keeps_their_axes_apart() -> None:
    m = Make()
    x, row = m.x("x", 3, 5, 8), m.w("w", 5)
    folding = lowered(m.reduced("sum", m.mul(x, m.reshape(row, 5, 1)), 2))
    assert [loop.extent for loop in folding.kept] == [3, 5]
    accesses = {
        d.buffer: d.access for d in folding.steps[0].walk.kernel.definitions if isinstance(d, Load)
    }
    assert accesses == {"x": Access.VECTOR, "w": Access.SAME}


def test_odd_axes_that_are_flat_together_are_read_by_packets() -> None:
    m = Make()
    x = m.x("x", BATCH, 28, 35)
    alone = lowered(m.reduced("sum", x, 0, 1, 2))
    (load,) = [d for d in alone.steps[0].walk.kernel.definitions if isinstance(d, Load)]
    assert (alone.lanes, load.access) == (4, Access.VECTOR)
    with_scale = lowered(m.reduced("sum", m.mul(x, m.x("scale", 28, 1)), 0, 1, 2))
    assert with_scale.lanes == 1, "the scale keeps the axes of 28 and 35 apart"


def test_a_reduction_of_everything_has_one_row() -> None:
    m = Make()
    folding = lowered(m.reduced("sum", m.x("x", BATCH, 24), 0, 1))
    assert [loop.extent for loop in folding.kept] == [1]
    assert [str(loop.extent) for loop in folding.reduced] == ["s0 * 24"]


@given(graphs(calls=True, reductions=True), st.sampled_from([SM_90A, CPU]))
def test_random_graphs(graph: Graph, target) -> None:
    assert_means(graph, target)


@given(graphs(reductions=True))
def test_random_graphs_with_rows_in_pieces(graph: Graph) -> None:
    with mock.patch.object(rows, "LONG_ROW", 1):
        assert_means(graph, SM_90A)


def assert_means(graph: Graph, target: Target) -> None:
    """Both foldings give the values of the graph."""
    plan = make_plan(graph, target)
    kernels = lower(plan)
    for lowered in kernels:
        check(lowered)
    for n in batches_of(graph):
        feeds = feeds_of(graph, {"s0": n})
        wanted = exact_and_errors(graph, feeds, {"s0": n})
        for variant in ("contiguous", "strided"):
            got = run_plan(plan, kernels, feeds, {"s0": n}, variant=variant, calls=double)
            assert_close_to(got, wanted, f"{variant}, batch {n}")
