"""Which pointwise kernels are computed as a product splits its operand, and why others are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.ir.graph import Node
from opweld.ir.kernels.product import Axis, Matrix, Mode, even_strides
from opweld.ir.plan import Conditions, Group, GroupKind, Plan
from opweld.ir.types import DType
from opweld.plan import make_plan

from .plans import BATCH, Make, graph, plan_of
from .test_choice import EAGER, linear


def kinds(plan: Plan) -> list[str]:
    return [group.kind.value for group in plan.groups]


def only(plan: Plan, kind: GroupKind) -> Group:
    (group,) = (group for group in plan.groups if group.kind is kind)
    return group


def activation(m: Make) -> tuple[Node, Node]:
    x = m.x("x", BATCH, 64)
    return x, m.gelu(m.add(x, m.x("residual", BATCH, 64)))


def test_an_activation_is_computed_where_it_is_split():
    m = Make()
    _, h = activation(m)
    y = linear(m, h, 32)
    (group,) = plan_of(m.relu(y), target=EAGER).groups
    assert group.name == "k2_add_gelu_linear_relu" and group.anchor is y
    assert group.prologue is not None and group.prologue.outputs == (h,)
    assert [node.attrs.name for node in group.inputs] == ["x", "residual", "fc_weight"]
    assert [node.op.value for node in group.nodes] == ["add", "gelu", "call", "relu"]
    assert group.reason.endswith("; the 2 operations before it, as its operand is split")


def test_what_it_saves_is_told_where_sizes_are_known():
    m = Make()
    y = linear(m, m.exp(m.x("x", 100, 64)), 32)
    (group,) = plan_of(y, target=EAGER).groups
    assert group.reason.endswith(
        "the operation before it, as its operand is split: 0.1 MB less to move"
    )
    assert group.estimate.bytes == 4 * (100 * 64 + 32 * 64 + 100 * 32)


def test_an_operand_is_seen_behind_views():
    m = Make()
    h = m.exp(m.x("x", BATCH, 20, 64))
    (group,) = plan_of(linear(m, h, 32), target=EAGER).groups
    assert group.prologue is not None
    turned = m.exp(m.x("x", 64, 40))
    y = m.product("mm", m.permute(turned, 1, 0), m.w("w", 64, 32), shape=(40, 32))
    (group,) = plan_of(y, target=EAGER).groups
    assert group.prologue is not None


def test_products_that_share_an_operand_compute_it_each():
    m = Make()
    h = m.exp(m.x("x", BATCH, 64))
    query, key = linear(m, h, 32, "query"), linear(m, h, 48, "key")
    plan = plan_of(query, key, target=EAGER)
    assert kinds(plan) == ["contraction", "contraction"]
    assert len({group.name for group in plan.groups}) == 2


def test_operands_of_many_values_are_not_read_by_each():
    m = Make()
    x, y, z = (m.x(name, BATCH, 64) for name in "xyz")
    h = m.exp(m.add(m.add(x, y), z))
    plan = plan_of(linear(m, h, 32, "query"), linear(m, h, 48, "key"), target=EAGER)
    assert kinds(plan) == ["pointwise", "contraction", "contraction"]
    reason = only(plan, GroupKind.POINTWISE).reason
    assert reason.endswith("; each of the 2 products after it would read all that it reads")


def test_a_value_that_is_needed_in_memory_is_written():
    m = Make()
    h = m.exp(m.x("x", BATCH, 64))
    plan = plan_of(linear(m, h, 32), h, target=EAGER)
    assert kinds(plan) == ["pointwise", "contraction"]
    reason = only(plan, GroupKind.POINTWISE).reason
    assert reason.endswith("; its result is needed in memory")


@pytest.mark.parametrize("place", ["tail", "other operand", "added"])
def test_a_value_that_a_product_reads_twice_is_written(place: str):
    m = Make()
    h = m.exp(m.x("x", 64, 64))
    if place == "tail":
        result = m.mul(linear(m, h, 64), h)
    elif place == "added":
        result = m.product("addmm", h, h, m.w("w", 64, 64), shape=(64, 64))
    else:
        result = m.product("mm", h, h, shape=(64, 64))
    plan = plan_of(result, target=EAGER)
    reason = only(plan, GroupKind.POINTWISE).reason
    assert reason.endswith("; its result is needed beside the product's operand")


@pytest.mark.parametrize("case", ["few rows", "short sums", "half", "no tensor cores", "long sums"])
def test_an_operand_that_is_not_split_is_written(case: str):
    m = Make()
    dtype = DType.F16 if case == "half" else DType.F32
    sizes = {"few rows": (16, 64), "short sums": (40, 32), "long sums": (40, 1024)}
    rows, inner = sizes.get(case, (40, 64))
    h = m.exp(m.x("x", rows, inner, dtype=dtype))
    y = m.product("linear", h, m.x("y", 48, inner, dtype=dtype), shape=(rows, 48))
    target = replace(EAGER, tensor_cores="none") if case == "no tensor cores" else EAGER
    plan = plan_of(y, target=target)
    reason = only(plan, GroupKind.POINTWISE).reason
    assert reason.endswith("reads its operand more than once, and without splitting it")


def test_examples_of_sizes_decide():
    m = Make()
    given = graph(linear(m, m.exp(m.x("x", BATCH, 64)), 32))
    for rows, groups in ((8, 2), (100, 1)):
        plan = make_plan(given, EAGER, conditions=Conditions(sizes=(("s0", rows),)))
        assert len(plan.groups) == groups


def test_a_group_given_back_is_two_again():
    m = Make()
    given = graph(linear(m, m.exp(m.x("x", BATCH, 64)), 32))
    plan = make_plan(given, EAGER, excluded=frozenset(["k2_exp_linear"]))
    assert [group.name for group in plan.groups] == ["k1_exp", "k2_linear"]


def test_where_tf32_is_allowed_too():
    m = Make()
    given = graph(linear(m, m.exp(m.x("x", BATCH, 64)), 32))
    (group,) = make_plan(given, EAGER, conditions=Conditions(tf32=True)).groups
    assert group.prologue is not None and group.schedule.mode is Mode.TF32


def test_strides_of_what_lies_without_gaps():
    rows = (Axis(3, 0), Axis(1, None), Axis(5, 1))
    assert even_strides(Matrix((), rows, (Axis(7, 2),)), (3, 5, 7)) == (0, 7, 1)
    assert even_strides(Matrix((Axis(4, None),), rows, (Axis(7, 2),)), (3, 5, 7)) == (0, 7, 1)
    assert even_strides(Matrix((Axis(3, 0),), (Axis(7, 2),), (Axis(5, 1),)), (3, 5, 7)) == (
        35,
        1,
        7,
    )
    assert even_strides(Matrix((), (Axis(5, 1), Axis(3, 0)), (Axis(7, 2),)), (3, 5, 7)) is None
