"""Results in the shape in which they are read."""

from __future__ import annotations

import numpy as np
import pytest
from tests.plan_meaning import run_plan
from tests.unit.plan.plans import BATCH, Make, graph, plan_of
from tests.unit.plan.test_choice import EAGER

from opweld.ir.check import check
from opweld.ir.graph import Node
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.plan import GroupKind, Plan
from opweld.lower import lower


def sums(m: Make) -> Node:
    return m.reduced("sum", m.x("x", BATCH, 4, 6), 2)


def shapes(plan: Plan) -> list[list[str]]:
    """Of each group's results."""
    return [[str(node.type) for node in group.outputs] for group in plan.groups]


def require_right(plan: Plan, *results: Node) -> None:
    check(plan)
    feeds = {"x": np.arange(72, dtype=np.float32).reshape(3, 4, 6)}
    got = run_plan(plan, lower(plan), feeds, {"s0": 3})
    wanted = interpret_outputs(graph(*results), feeds, {"s0": 3})
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_view_that_leaves_axes_of_size_1_out_is_the_kernels_own() -> None:
    m = Make()
    result = m.reshape(sums(m), BATCH, 4)
    plan = plan_of(result)
    assert shapes(plan) == [["f32[s0, 4]"]]
    require_right(plan, result)


def test_who_reads_it_reads_the_view() -> None:
    """As if it were an operand: the kernel for what is read knows of no axis of size 1."""
    m = Make()
    result = m.call(m.reshape(sums(m), BATCH, 4))
    plan = plan_of(result)
    assert shapes(plan) == [["f32[s0, 4]"], ["f32[s0, 4]"]]
    (made,) = plan.groups[0].outputs
    assert plan.groups[1].inputs == (made,) and made not in plan.groups[1].nodes


def test_a_scalar_has_no_axes() -> None:
    m = Make()
    result = m.reshape(m.reduced("sum", m.x("x", BATCH, 4, 6), 0, 1, 2))
    plan = plan_of(result)
    assert shapes(plan) == [["f32[]"]]
    require_right(plan, result)


@pytest.mark.parametrize("case", ["another shape", "two readers", "returned itself", "moved"])
def test_other_readers_keep_the_result(case: str) -> None:
    m = Make()
    found = sums(m)
    others = {
        "another shape": (m.reshape(found, BATCH, 2, 2),),
        "two readers": (m.reshape(found, BATCH, 4), m.permute(found, 1, 0, 2)),
        "returned itself": (m.reshape(found, BATCH, 4), found),
        "moved": (m.permute(found, 1, 0, 2),),
    }
    plan = plan_of(*others[case])
    assert shapes(plan)[0] == ["f32[s0, 4, 1]"]
    require_right(plan, *others[case])


def test_a_product_reads_what_is_in_memory() -> None:
    """Its axes tell where, and know nothing of a view that a kernel makes."""
    m = Make()
    rows = m.reshape(sums(m), BATCH, 4)
    result = m.product("linear", rows, m.w("w", 64, 4), shape=(BATCH, 64))
    plan = plan_of(result, target=EAGER)
    assert [group.kind for group in plan.groups] == [GroupKind.REDUCTION, GroupKind.CONTRACTION]
    assert shapes(plan) == [["f32[s0, 4, 1]"], ["f32[s0, 64]"]]
    check(plan)


def test_readers_inside_the_kernel_do_not_count() -> None:
    """What a row is divided by is told in the shape in which it is read elsewhere."""
    m = Make()
    found = sums(m)
    results = (m.div(m.x("x", BATCH, 4, 6), found), m.reshape(found, BATCH, 4))
    plan = plan_of(*results)
    assert [set(each) for each in shapes(plan)] == [{"f32[s0, 4, 6]", "f32[s0, 4]"}]
    require_right(plan, *results)
