"""Which products become kernels, with which tail, and what the plan says of the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.ir.attrs import CastAttrs
from opweld.ir.expr import Size
from opweld.ir.graph import Node
from opweld.ir.kernels.product import Form, FormRow, Mode
from opweld.ir.ops import Op
from opweld.ir.plan import Conditions, Group, GroupKind, Plan
from opweld.ir.types import DType
from opweld.plan import make_plan
from opweld.target import CPU, SM_80, SM_90A, ProductRates

from .plans import BATCH, Make, graph, plan_of

EVERY = {mode: ProductRates(ours=1e15, library=1.0) for mode in Mode}
EAGER = replace(SM_90A, products=frozenset(Mode), product_rates=EVERY)
"""A target on which every product is worth a kernel."""


def linear(m: Make, x: Node, columns: int, name: str = "fc", bias: bool = False) -> Node:
    *rows, inner = x.type.shape
    added = (m.w(f"{name}.bias", columns),) if bias else ()
    weight = m.w(f"{name}.weight", columns, inner)
    return m.product("linear", x, weight, *added, shape=(*rows, columns))


def contractions(plan: Plan) -> list[Group]:
    return [group for group in plan.groups if group.kind is GroupKind.CONTRACTION]


def operations(group: Group) -> list[str]:
    return [node.op.value for node in group.nodes]


def test_a_tail_joins_its_product():
    m = Make()
    x, y = m.x("x", BATCH, 8), m.x("y", BATCH, 6)
    h = linear(m, x, 6, bias=True)
    plan = plan_of(m.add(m.relu(h), y), h, target=EAGER)
    (group,) = plan.groups
    assert operations(group) == ["call", "relu", "add"]
    assert group.name == "k1_linear_relu_add" and group.anchor is h
    assert [node.attrs.name for node in group.inputs] == ["x", "fc_weight", "fc_bias", "y"]
    assert [node.op.value for node in group.outputs] == ["call", "add"]


def test_a_residual_of_the_activation_joins_too():
    m = Make()
    x = m.x("x", BATCH, 8)
    (group,) = plan_of(m.add(linear(m, x, 8), x), target=EAGER).groups
    assert [node.attrs.name for node in group.inputs] == ["x", "fc_weight"]


def test_what_a_product_needs_is_not_in_its_tail():
    m = Make()
    x = m.relu(m.x("x", BATCH, 8))
    plan = plan_of(m.add(linear(m, x, 8), x), target=EAGER)
    assert [operations(group) for group in plan.groups] == [["relu"], ["call", "add"]]


def squares_of(m: Make, h: Node) -> Node:
    """The root of the mean of squares along the last axis."""
    squares = m.abs(m.mul(h, h))
    return m.sqrt(m.reduced("sum", squares, 1))


def test_what_is_only_reduced_of_a_value_in_memory_joins_the_reduction():
    m = Make()
    x = m.x("x", BATCH, 8)
    h = m.add(linear(m, x, 8), x)
    plan = plan_of(m.div(h, squares_of(m, h)), target=EAGER)
    assert [operations(g) for g in plan.groups] == [
        ["call", "add"],
        ["mul", "abs", "sum", "sqrt", "div"],
    ]
    assert [[n.op.value for n in g.outputs] for g in plan.groups] == [["add"], ["div"]]


def test_what_is_only_reduced_joins_the_product_where_that_saves_the_value():
    m = Make()
    h = linear(m, m.x("x", BATCH, 8), 8)
    plan = plan_of(squares_of(m, h), target=EAGER)
    assert operations(plan.groups[0]) == ["call", "mul", "abs"]


def test_what_is_read_elsewhere_or_made_of_two_values_joins_too():
    m = Make()
    x, h = m.x("x", BATCH, 8), linear(m, m.x("z", BATCH, 8), 8)
    squares = m.mul(h, h)
    plan = plan_of(m.div(h, m.reduced("sum", squares, 1)), squares, target=EAGER)
    assert operations(plan.groups[0]) == ["call", "mul"]
    plan = plan_of(m.div(h, m.reduced("sum", m.mul(h, x), 1)), target=EAGER)
    assert operations(plan.groups[0]) == ["call", "mul"]


def test_two_products_are_two_kernels():
    m = Make()
    x = m.x("x", BATCH, 8)
    gate = m.mul(m.sigmoid(linear(m, x, 8, "gate")), linear(m, x, 8, "up"))
    plan = plan_of(gate, target=EAGER)
    assert sorted(len(operations(group)) for group in contractions(plan)) == [1, 3]
    chain = linear(m, m.relu(linear(m, x, 8, "first")), 8, "second")
    plan = plan_of(m.add(m.tanh(chain), x), target=EAGER)
    assert [operations(g) for g in plan.groups] == [["call", "relu"], ["call", "tanh", "add"]]


def test_a_tail_of_another_shape_stays_apart():
    m = Make()
    x, y = m.x("x", BATCH, 8), m.x("y", 3, BATCH, 6)
    plan = plan_of(m.mul(linear(m, x, 6), y), target=EAGER)
    assert [operations(group) for group in plan.groups] == [["call"], ["mul"]]
    turned = m.add(m.permute(linear(m, x, 6), 1, 0), m.x("z", 6, BATCH))
    plan = plan_of(turned, target=EAGER)
    assert [group.kind for group in plan.groups] == [GroupKind.CONTRACTION, GroupKind.POINTWISE]


def test_a_product_read_in_two_places_is_no_tail():
    m = Make()
    h = linear(m, m.x("x", 8, 8), 8)
    plan = plan_of(m.add(h, m.permute(h, 1, 0)), target=EAGER)
    assert [operations(g) for g in plan.groups] == [["call"], ["permute", "add"]]


def test_a_view_before_an_operand_is_no_group():
    m = Make()
    x, w = m.x("x", BATCH, 8), m.w("w", 6, 8)
    (group,) = plan_of(
        m.product("matmul", x, m.permute(w, 1, 0), shape=(BATCH, 6)), target=EAGER
    ).groups
    assert group.inputs == (x, w) and operations(group) == ["permute", "call"]


def test_a_view_with_an_offset_is_made_before():
    m = Make()
    x, w = m.x("x", BATCH, 8), m.w("w", 16, 6)
    half = m.slice(w, 0, 8, 8)
    plan = plan_of(m.product("mm", x, half, shape=(BATCH, 6)), target=EAGER)
    assert [group.kind for group in plan.groups] == [GroupKind.VIEW, GroupKind.CONTRACTION]
    assert plan.groups[1].product.held


def test_a_view_with_an_offset_behind_another_view_is_made_before():
    """As of an LSTM's gates, or of scores that take another shape before they are turned."""
    m = Make()
    for x in (m.slice(m.x("x", 6, 16), 1, 8, 8), m.reshape(m.exp(m.x("x", 48)), 6, 8)):
        product = m.product("mm", m.x("y", 5, 6), m.permute(m.permute(x, 1, 0), 1, 0), shape=(5, 8))
        turned = m.product("matmul", m.permute(x, 1, 0), m.w("w", 6, 3), shape=(8, 3))
        plan = plan_of(product, turned, target=EAGER)
        assert [group.nodes for group in plan.groups if group.kind is GroupKind.VIEW] == [(x,)]
        assert len(contractions(plan)) == 2


def test_large_and_small_products_gain_and_those_between_do_not():
    m = Make()
    (small,) = plan_of(m.relu(linear(m, m.x("x", BATCH, 64), 64))).groups
    assert small.schedule.forms == (FormRow(Form.FMA, side=32), FormRow(Form.FMA))
    assert small.reason == (
        "a matrix product with the operation after it: about 4.2 us, the library and a kernel for "
        "the rest 10.8 us; small enough for the CUDA cores, which split nothing"
    )
    between = plan_of(m.relu(linear(m, m.x("x", 8192, 128), 128)))
    assert not contractions(between)
    reason = between.groups[0].reason
    assert reason.startswith(
        "a matrix product that gains nothing as a kernel of ours: about 18.4 us, the"
    )
    large = plan_of(m.relu(linear(m, m.x("x", BATCH, 8192), 8192)))
    (group,) = large.groups
    assert group.reason == (
        "a matrix product with the operation after it: about 658 us, "
        "the library and a kernel for the rest 2721 us; 268.4 MB are kept of the weight, "
        "split again only where it changed"
    )
    assert group.schedule.mode is Mode.FAITHFUL and group.estimate.limit == "compute"


@pytest.mark.parametrize(
    ("rows", "inner", "ours"), [(16384, 16, True), (16384, 1, True), (64, 16, False)]
)
def test_short_sums_are_ours_where_there_is_much_to_store(rows: int, inner: int, ours: bool):
    m = Make()
    x, y = m.x("x", rows, inner), m.x("y", 12288, inner)
    result = m.product("matmul", x, m.permute(y, 1, 0), shape=(rows, 12288))
    plan = plan_of(result)
    assert bool(contractions(plan)) == ours
    assert any("gains nothing" in group.reason for group in plan.groups) != ours


@pytest.mark.parametrize(
    ("inner", "heavy", "kernels"), [(16, False, 1), (16, True, 2), (64, True, 1)]
)
def test_what_follows_short_sums_is_theirs_unless_it_takes_long(
    inner: int, heavy: bool, kernels: int
) -> None:
    """The kernel of short sums computes it slowly; that of long ones beside the tensor cores."""
    m = Make()
    y = linear(m, m.x("x", 16384, inner), 12288, bias=True)
    plan = plan_of(m.tanh(m.mul(y, m.sigmoid(y))) if heavy else m.relu(y))
    assert len(plan.groups) == kernels and len(contractions(plan)) == 1
    (product,) = contractions(plan)
    assert ("with a kernel for the rest, as one" in product.reason) == (kernels == 2)
    assert operations(product) == ["call"] if kernels == 2 else operations(product)[0] == "call"
    if kernels == 2:
        assert plan.groups[1].kind is GroupKind.POINTWISE


def test_nothing_is_kept_of_a_weight_that_is_read_as_it_is():
    m = Make()
    (group,) = plan_of(m.relu(linear(m, m.x("x", 65536, 16), 8192))).groups
    assert group.kind is GroupKind.CONTRACTION and "kept" not in group.reason


@pytest.mark.parametrize(("rows", "kept"), [(1, False), (16, False), (17, True), (BATCH, True)])
def test_few_rows_read_a_weight_as_it_is(rows: Size, kept: bool):
    m = Make()
    (group,) = plan_of(m.relu(linear(m, m.x("x", rows, 8192), 8192))).groups
    assert group.kind is GroupKind.CONTRACTION and ("kept" in group.reason) == kept


def test_where_tf32_is_allowed_one_part_of_a_weight_is_kept():
    m = Make()
    result = graph(m.relu(linear(m, m.x("x", BATCH, 8192), 8192)))
    (group,) = make_plan(result, SM_90A, conditions=Conditions(tf32=True)).groups
    assert group.kind is GroupKind.CONTRACTION and group.schedule.mode is Mode.TF32
    assert "; 134.2 MB are kept of the weight, " in group.reason


def test_a_small_product_is_ours_for_what_follows_it():
    """By itself it would save less than an estimate can tell."""
    for follows in (False, True):
        m = Make()
        made = linear(m, m.x("x", 40, 16), 4)
        plan = plan_of(m.relu(m.relu(made)) if follows else made, target=SM_90A)
        assert len(contractions(plan)) == follows


def test_symbols_stand_for_their_examples():
    m = Make()
    result = graph(linear(m, m.x("x", BATCH, 128), 128))
    plans = [
        make_plan(result, SM_90A, conditions=Conditions(sizes=(("s0", size),)))
        for size in (17, 8192)
    ]
    assert [len(contractions(plan)) for plan in plans] == [1, 0]


def test_the_cpu_leaves_products_to_the_library():
    m = Make()
    result = m.relu(linear(m, m.x("x", BATCH, 8192), 8192))
    plan = plan_of(result, target=CPU)
    assert [group.kind for group in plan.groups] == [GroupKind.LIBRARY, GroupKind.POINTWISE]
    assert plan.groups[0].reason == "a product"
    (group,) = plan_of(result, target=SM_80).groups
    assert group.kind is GroupKind.CONTRACTION and group.schedule.mode is Mode.FAITHFUL


def test_modes_follow_types_and_flags():
    m = Make()
    x, h = m.x("x", BATCH, 8), m.x("h", BATCH, 8, dtype=DType.F16)
    product = graph(linear(m, x, 6))
    half = graph(m.product("mm", h, m.permute(h, 1, 0), shape=(BATCH, BATCH)))
    loose = Conditions(tf32=True)
    for result, conditions, mode in (
        (product, Conditions(), Mode.FAITHFUL),
        (product, loose, Mode.TF32),
        (half, loose, Mode.HALF),
    ):
        (group,) = make_plan(result, EAGER, conditions=conditions).groups
        assert group.schedule.mode is mode
        without = replace(EAGER, products=EAGER.products - {mode})
        group = make_plan(result, without, conditions=conditions).groups[-1]
        assert group.kind is GroupKind.LIBRARY and f"mode {mode.value}" in group.reason


def test_under_autocast_products_are_the_librarys():
    m = Make()
    result = graph(linear(m, m.x("x", BATCH, 8), 6))
    (group,) = make_plan(result, EAGER, conditions=Conditions(autocast=True)).groups
    assert group.reason == "a matrix product of the library's: autocast casts its operands"


def test_a_weight_is_held_unless_that_is_forbidden():
    m = Make()
    result = graph(linear(m, m.x("x", BATCH, 8), 6))
    for allowed in (True, False):
        conditions = Conditions(weight_cache=allowed)
        (group,) = make_plan(result, EAGER, conditions=conditions).groups
        assert group.product.held is allowed
    moving = m.product("bmm", m.x("a", 2, 3, 4), m.x("b", 2, 4, 3), shape=(2, 3, 3))
    assert not plan_of(moving, target=EAGER).groups[0].product.held


def test_a_product_is_given_back_with_its_tail():
    m = Make()
    result = m.relu(linear(m, m.x("x", BATCH, 8), 6))
    name = plan_of(result, target=EAGER).groups[0].name
    (group,) = plan_of(result, target=EAGER, excluded=frozenset([name])).groups
    assert group.kind is GroupKind.LIBRARY and operations(group) == ["call", "relu"]


def test_rows_of_odd_length_are_written_one_by_one():
    m = Make()
    x = m.x("x", BATCH, 8)
    lanes = {n: plan_of(linear(m, x, n), target=EAGER).groups[0].schedule.lanes for n in (6, 7, 8)}
    assert lanes == {6: 2, 7: 1, 8: 4}


def of_16_bits(
    m: Make, rows: int, inner: int, columns: int, turned: bool, wide: bool = False
) -> Node:
    x = m.x("x", rows, inner, dtype=DType.BF16)
    shape = (columns, inner) if turned else (inner, columns)
    y = m.product(
        "linear" if turned else "mm", x, m.x("y", *shape, dtype=DType.BF16), shape=(rows, columns)
    )
    return m.sigmoid(m.arena.make(Op.CAST, y, attrs=CastAttrs(DType.F32)) if wide else y)


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "turned", "reason"),
    [
        (16384, 512, 2048, True, ""),
        (16, 512, 2048, True, "few rows of 16 bits"),
        (16384, 512, 2048, False, "do not lie as the copy engine reads them"),
        (16384, 515, 2048, True, "do not lie as the copy engine reads them"),
    ],
)
def test_products_of_16_bits_are_ours_where_their_sums_stay_float32(
    rows: int, inner: int, columns: int, turned: bool, reason: str
) -> None:
    plan = plan_of(of_16_bits(Make(), rows, inner, columns, turned, wide=True), target=SM_90A)
    made = contractions(plan)
    assert len(made) == (0 if reason else 1)
    assert all(group.schedule.mode is Mode.BFLOAT16 for group in made)
    assert any(reason in group.reason for group in plan.groups)


@pytest.mark.parametrize("inner", [64, 512, 8192])
def test_products_of_16_bits_that_are_rounded_are_the_librarys(inner: int) -> None:
    plan = plan_of(of_16_bits(Make(), 16384, inner, 2048, turned=True), target=SM_90A)
    assert not contractions(plan)
    assert "gains nothing" in plan.groups[0].reason
