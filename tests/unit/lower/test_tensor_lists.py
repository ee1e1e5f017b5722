"""Which concatenations kernels are given as lists, and what is shared by lists of any length."""

from __future__ import annotations

from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.check import check
from opweld.ir.graph import Node
from opweld.ir.kernels.shared import sharing
from opweld.ir.original import Part
from opweld.ir.plan import Group, Plan
from opweld.lower import lower
from opweld.lower.lifting import lifting
from opweld.lower.tensor_lists import with_tensor_lists
from opweld.plan import make_plan
from opweld.render.cuda.texts import runs_by_skeleton
from opweld.target import SM_90A


def over_lists(*results: Node) -> Plan:
    plan = with_tensor_lists(make_plan(graph(*results), SM_90A), runs_by_skeleton)
    check(plan)
    return plan


def fused(plan: Plan) -> list[Group]:
    return [group for group in plan.groups if group.fused]


def scaled(m: Make, name: str, *sizes: int) -> Node:
    tensors = [m.x(f"{name}_{i}", BATCH, size, 6) for i, size in enumerate(sizes)]
    return m.relu(m.mul(m.cat(1, *tensors), m.w(f"{name}_weight", sum(sizes), 1)))


def test_the_operand_is_the_concatenation_and_the_tensors_are_read() -> None:
    m = Make()
    (group,) = fused(over_lists(scaled(m, "x", 4, 8)))
    assert [node.op.value for node in group.inputs] == ["cat", "weight"]
    assert (group.listed, len(group.tensors)) == (0, 3)
    assert all(node.op.value != "cat" for node in group.nodes)


def test_a_view_of_a_tensor_stays_outside() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 24), m.x("y", BATCH, 5, 6)
    (group,) = fused(over_lists(m.relu(m.cat(1, m.reshape(x, BATCH, 4, 6), y))))
    assert group.tensors == (x, y) and [node.op.value for node in group.nodes] == ["relu"]


def test_a_concatenation_that_is_read_in_parts_is_no_list() -> None:
    """A skeleton goes by the sizes of all its tensors."""
    m = Make()
    joined = m.cat(1, m.x("x", BATCH, 5, 6), m.x("y", BATCH, 7, 6))
    first, second = m.slice(joined, 1, 0, 6), m.slice(joined, 1, 6, 6)
    for result in (m.relu(m.mul(first, second)), m.relu(first), m.reduced("sum", first, 2)):
        (group,) = fused(over_lists(result))
        assert group.listed is None


def test_any_number_of_tensors_has_one_kernel() -> None:
    m = Make()
    plan = over_lists(*(scaled(m, f"x{n}", *[8] * n) for n in (2, 3, 5)))
    (part,) = sharing(lifting((Part(None, plan, lower(plan)),), "cuda"))  # type: ignore[arg-type]
    assert len(fused(part.plan)) == 3
    assert len({group.name for group in fused(part.plan)}) == 1


def test_what_is_computed_inside_is_no_list() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 4, 6), m.x("y", BATCH, 4, 6)
    (group,) = fused(over_lists(m.relu(m.cat(1, m.exp(x), y))))
    assert group.listed is None


def test_what_is_joined_in_memory_is_no_list() -> None:
    m = Make()
    joined = m.cat(1, m.x("x", BATCH, 4, 6), m.x("y", BATCH, 4, 6))
    assert all(group.listed is None for group in fused(over_lists(m.relu(joined), joined)))


def test_a_reduction_has_a_list_where_rows_are_of_one_tensor() -> None:
    m = Make()
    joined = m.cat(1, m.x("x", BATCH, 4, 64), m.x("y", BATCH, 8, 64), m.x("z", BATCH, 4, 64))
    rows = m.mul(joined, m.reduced("sum", joined, 2))
    (group,) = fused(over_lists(rows))
    assert group.listed == 0
    (call, group) = over_lists(m.mul(joined, m.reduced("sum", joined, 1))).groups
    assert (call.name, call.outputs, group.listed) == ("cat", (joined,), None)
    assert joined in group.inputs


def test_a_list_takes_no_memory_of_an_operand_over() -> None:
    """Which one that was, is told by a place among operands that are others now."""
    m = Make()
    tensors = [m.call(m.x(f"x{i}", BATCH, 4, 6)) for i in range(3)]
    result = m.mul(m.cat(1, *tensors), m.call(m.x("y", BATCH, 12, 6)))
    (joined,) = [g for g in make_plan(graph(result), SM_90A).groups if g.fused]
    assert joined.reuse is not None
    (group,) = fused(over_lists(result))
    assert group.listed is not None and group.reuse is None


def test_tensors_are_joined_behind_what_makes_them() -> None:
    m = Make()
    tensors = [m.call(m.x(f"x{i}", BATCH, 4)) for i in range(3)]
    result = m.reduced("sum", m.exp(m.cat(1, *tensors)), 1)
    assert [group.name for group in over_lists(result).groups] == [
        *["linear"] * 3,
        "cat",
        "k1_exp_sum",
    ]
