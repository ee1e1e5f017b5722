"""Operators of fused groups: what their results look like."""

from __future__ import annotations

from tests.calls import calls_at_most
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.operator import operator_of, operators_of
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.target import SM_90A


def test_layouts_are_found_in_linear_time() -> None:
    """Of no operand's shape, of which all ways to them would be gone, 2^60 at most."""
    m = Make()
    value = m.add(m.x("column", BATCH, 1), m.w("row", 6))
    for _ in range(60):
        value = m.add(m.mul(value, value), value)
    plan = make_plan(graph(value), SM_90A)
    kernels = lower(plan)
    with calls_at_most(100_000):
        first, *_ = operators_of([group for group in plan.groups if group.fused], kernels)
    assert {result.like for result in first[2].results} == {None}


def test_the_layout_is_that_of_the_first_operand_of_the_shape() -> None:
    m = Make()
    first, second = m.x("first", BATCH, 6), m.x("second", BATCH, 6)
    value = m.mul(m.add(m.w("row", 6), second), first)
    plan = make_plan(graph(value), SM_90A)
    (group,) = (each for each in plan.groups if each.fused)
    (kernel,) = lower(plan)
    operator = operator_of(group, kernel)
    (result,) = operator.results
    assert result.like is not None and operator.arguments[result.like].name == "second"
