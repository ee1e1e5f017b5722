"""Which products run in row blocks with the kernel after them, and why the others do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.ir.check import check
from opweld.ir.graph import Node
from opweld.ir.plan import Conditions, Group, GroupKind, Plan, RowBlockSchedule
from opweld.ir.types import DType
from opweld.plan import make_plan
from opweld.target import CPU, SM_90A

from .plans import BATCH, Make, graph

MANY = Conditions(sizes=(("s0", 65536),))


def plan_on(*outputs: Node, conditions: Conditions = MANY, target=CPU, **options) -> Plan:
    plan = make_plan(graph(*outputs), target, conditions=conditions, **options)
    check(plan)
    return plan


def kinds(plan: Plan) -> list[GroupKind]:
    return [group.kind for group in plan.groups]


APART = [GroupKind.LIBRARY, GroupKind.POINTWISE]


def linear(m: Make, x: Node, columns: int, bias: bool = True) -> Node:
    *rows, inner = x.type.shape
    added = (m.w("fc.bias", columns),) if bias else ()
    weight = m.w("fc.weight", columns, inner)
    return m.product("linear", x, weight, *added, shape=(*rows, columns))


def relu_of_linear(inner: int, columns: int, bias: bool = True) -> Node:
    m = Make()
    return m.relu(linear(m, m.x("x", BATCH, inner), columns, bias))


def test_a_product_and_its_tail_become_one_group():
    m = Make()
    x, y = m.x("x", BATCH, 64), m.x("y", BATCH, 256)
    h = linear(m, x, 256)
    (group,) = plan_on(m.add(m.relu(h), y)).groups
    assert (group.kind, group.name) == (GroupKind.ROW_BLOCKS, "k1_linear_relu_add")
    assert group.anchor is h and group.schedule == RowBlockSchedule(1024)
    assert [node.attrs.name for node in group.inputs] == ["x", "fc_weight", "fc_bias", "y"]
    assert group.tail is not None and group.tail.name == "k1_relu_add"
    # Four times 65536 x 256 floats less, 64 packings of 64 x 256 floats, at six each, more.
    assert "268.4 MB less" in group.reason and "25.2 MB more" in group.reason
    assert "the 2 operations after it" in group.reason


def test_what_is_read_twice_is_one_operand():
    m = Make()
    x = m.x("x", BATCH, 256)
    (group,) = plan_on(m.add(m.tanh(linear(m, x, 256)), x)).groups
    assert [node.attrs.name for node in group.inputs] == ["x", "fc_weight", "fc_bias"]


@pytest.mark.parametrize("columns, rows", [(16, 1024), (256, 1024), (300, 512), (4096, 512)])
def test_rows_are_as_many_as_the_cache_holds(columns: int, rows: int):
    (group,) = plan_on(relu_of_linear(32, columns)).groups
    assert group.schedule == RowBlockSchedule(rows)


def test_a_large_weight_is_not_packed_for_every_block():
    assert kinds(plan_on(relu_of_linear(340, 1024))) == [GroupKind.ROW_BLOCKS]
    assert kinds(plan_on(relu_of_linear(342, 1024))) == APART
    # Without a bias less is saved.
    assert kinds(plan_on(relu_of_linear(170, 1024, bias=False))) == [GroupKind.ROW_BLOCKS]
    assert kinds(plan_on(relu_of_linear(171, 1024, bias=False))) == APART


def test_results_that_fit_the_cache_stay_as_they_are():
    few = Conditions(sizes=(("s0", 1024),))
    assert kinds(plan_on(relu_of_linear(64, 1024), conditions=few)) == [GroupKind.ROW_BLOCKS]
    assert kinds(plan_on(relu_of_linear(64, 1023), conditions=few)) == APART


def test_under_autocast_and_on_a_gpu_there_are_none():
    autocast = replace(MANY, autocast=True)
    assert kinds(plan_on(relu_of_linear(64, 256), conditions=autocast)) == APART
    plan = plan_on(relu_of_linear(64, 256), target=SM_90A)
    assert GroupKind.ROW_BLOCKS not in kinds(plan)


def test_a_product_that_others_read_stays_apart():
    m = Make()
    h = linear(m, m.x("x", BATCH, 64), 256)
    assert kinds(plan_on(m.relu(h), h)) == APART


def test_half_precision_stays_apart():
    m = Make()
    x, w = m.x("x", BATCH, 64, dtype=DType.BF16), m.x("w", 512, 64, dtype=DType.BF16)
    assert kinds(plan_on(m.relu(m.product("linear", x, w, shape=(BATCH, 512))))) == APART


def test_a_group_given_back_leaves_the_two_apart():
    output = relu_of_linear(64, 256)
    plan = plan_on(output, excluded=frozenset(["k1_linear_relu"]))
    assert kinds(plan) == APART and plan.groups[1].name == "k1_relu"


def calls(m: Make) -> dict[str, Node]:
    x, z = m.x("x", BATCH, 32), m.x("z", BATCH, 5, 32)
    w, bias, full = m.w("w", 32, 256), m.w("bias", 256), m.x("full", BATCH, 256)
    stack = m.x("stack", BATCH, 32, 256)
    return {
        "mm": m.product("mm", x, w, shape=(BATCH, 256)),
        "matmul": m.product("matmul", z, w, shape=(BATCH, 5, 256)),
        "addmm": m.product("addmm", bias, x, w, shape=(BATCH, 256), beta=0.5, alpha=2),
        "batches": m.product("matmul", z, stack, shape=(BATCH, 5, 256)),
        "a residual": m.product("addmm", full, x, w, shape=(BATCH, 256)),
        "nothing added": m.product("addmm", bias, x, w, shape=(BATCH, 256), beta=0),
    }


@pytest.mark.parametrize("name", ["mm", "matmul", "addmm"])
def test_other_calls_of_rows(name: str):
    m = Make()
    (group,) = plan_on(m.relu(calls(m)[name])).groups
    product = group_product(group)
    assert not product.turned
    assert (product.alpha, product.beta) == ((2, 0.5) if name == "addmm" else (1, 1))
    assert (product.added is not None) == (name == "addmm")


def group_product(group: Group):
    assert group.rows_product is not None
    return group.rows_product


@pytest.mark.parametrize("name", ["batches", "a residual", "nothing added"])
def test_calls_that_are_not_of_rows(name: str):
    m = Make()
    assert kinds(plan_on(m.relu(calls(m)[name]))) == APART
