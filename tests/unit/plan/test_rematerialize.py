"""What the folds of cut rows compute for themselves, so that it is not stored for two kernels."""

from __future__ import annotations

import numpy as np
from tests.plan_meaning import run_plan
from tests.unit.plan.plans import Make, graph, plan_of
from tests.unit.plan.test_choice import EAGER

from opweld.ir.attrs import CastAttrs
from opweld.ir.graph import Node
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.ops import Op
from opweld.ir.plan import Group, GroupKind
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan.rematerialize import rematerialized
from opweld.plan.rows import LONG_ROW, Parallelism

FEW_ROWS = Parallelism(rows=264)
LENGTH = LONG_ROW + 8


def cast(m: Make, x: Node, dtype: DType) -> Node:
    return m.arena.make(Op.CAST, x, attrs=CastAttrs(dtype))


def operations_of(group: Group) -> list[str]:
    return [node.op.value for node in group.nodes if node.op is not Op.CONST]


def kernels_of(*outputs: Node) -> list[list[str]]:
    return [operations_of(group) for group in plan_of(*outputs).groups]


def half_norm(m: Make) -> Node:
    wide = cast(m, m.x("x", 3, LENGTH, dtype=DType.F16), DType.F32)
    return cast(m, m.standardised(wide, 1), DType.F16)


def test_a_cast_is_made_by_both_kernels_of_a_norm() -> None:
    folds, rest = kernels_of(half_norm(Make()))
    assert folds[:3] == ["cast", "sum", "div"] and rest[0] == "cast"


def test_scores_are_made_by_both_kernels_of_a_softmax() -> None:
    m = Make()
    scores = m.add(m.mul(m.x("x", 3, LENGTH), 0.125), m.x("mask", 3, LENGTH))
    folds, rest = kernels_of(m.softmax(scores, 1))
    assert folds == ["mul", "add", "amax", "sumexp"]
    assert rest == ["mul", "add", "sub", "exp", "div"]


def test_what_nobody_else_reads_or_memory_holds_is_made_once() -> None:
    m = Make()
    x = m.x("x", 3, LENGTH)
    alone = graph(m.reduced("sum", m.mul(x, x), 1))
    assert rematerialized(alone, FEW_ROWS) is alone
    doubled = m.add(x, x)
    returned = graph(doubled, m.sub(doubled, m.reduced("sum", doubled, 1)))
    assert rematerialized(returned, FEW_ROWS) is returned
    called = m.add(x, 1.0)
    outputs = graph(m.call(called), m.sub(called, m.reduced("sum", called, 1)))
    assert rematerialized(outputs, FEW_ROWS) is outputs


def test_what_takes_long_or_reads_much_is_made_once() -> None:
    m = Make()
    x = m.x("x", 3, LENGTH)
    dear = m.mish(m.tan(x))
    often = m.add(m.add(x, m.x("a", 3, LENGTH)), m.add(m.x("b", 3, LENGTH), m.x("c", 3, LENGTH)))
    for operand in (dear, often):
        before = graph(m.sub(operand, m.reduced("sum", operand, 1)))
        assert rematerialized(before, FEW_ROWS) is before
    cheap = m.mul(x, 2.0)
    before = graph(m.sub(cheap, m.reduced("sum", cheap, 1)))
    assert len(rematerialized(before, FEW_ROWS).nodes()) == len(before.nodes()) + 1
    whole = Parallelism(rows=3)
    assert rematerialized(before, whole) is before


def norm_gradients(m: Make, rows: int = 64, length: int = 256) -> tuple[Node, Node]:
    """The gradients of the elements and of the weight of a norm, from its factors."""
    x, grad, factor = m.x("x", rows, length), m.x("grad", rows, length), m.x("factor", rows, 1)
    normal = m.mul(x, factor)
    shared = m.mul(m.reduced("sum", m.mul(grad, normal), 1), 0.5)
    return m.sub(grad, m.mul(normal, shared)), m.reduced("sum", m.mul(grad, normal), 0)


def test_elements_of_columns_are_made_again_beside_rows() -> None:
    """Rather than written by one kernel and read by the other."""
    along, across = kernels_of(*norm_gradients(Make()))
    assert along == ["mul", "mul", "sum", "mul", "mul", "sub"]
    assert across == ["mul", "mul", "sum"]


def test_elements_of_columns_that_are_stored_or_read_much_are_made_once() -> None:
    m = Make()
    x = m.x("x", 64, 256)
    normal = m.mul(x, m.reduced("sum", x, 1))
    stored = graph(normal, m.reduced("sum", normal, 0))
    assert rematerialized(stored, FEW_ROWS) is stored
    many = m.add(m.mul(x, m.x("y", 64, 256)), m.x("z", 64, 256))
    before = graph(m.sub(many, m.reduced("sum", many, 1)), m.reduced("sum", m.mul(many, many), 0))
    assert rematerialized(before, Parallelism()) is before
    cubed = m.mul(m.mul(x, x), x)
    rows_alone = graph(m.reduced("sum", cubed, 0), m.reduced("amax", m.mul(cubed, 2.0), 0))
    assert rematerialized(rows_alone, Parallelism()) is rows_alone


def test_a_fold_whose_rows_need_it_is_not_made_apart() -> None:
    m = Make()
    x = m.x("x", 64, 256)
    doubled = m.mul(x, 2.0)
    both = [m.reduced("sum", m.mul(doubled, doubled), axis) for axis in (0, 1)]
    before = graph(m.sub(m.sub(doubled, both[0]), both[1]))
    assert rematerialized(before, Parallelism()) is before


def test_gradients_of_a_norm_mean_the_same() -> None:
    made = graph(*norm_gradients(Make()))
    plan = plan_of(*norm_gradients(Make()))
    rng = np.random.default_rng(1)
    feeds = {
        node.attrs.access: rng.standard_normal(node.type.shape).astype(np.float32)
        for node in plan.graph.inputs
    }
    wanted = interpret_outputs(made, feeds, {}, precision="float64")
    for ours, exact in zip(run_plan(plan, lower(plan), feeds, {}), wanted, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=1e-4)


def test_calls_keep_their_order() -> None:
    m = Make()
    first = m.call(m.x("x", 3, LENGTH), draws=True)
    cheap = m.mul(first, 2.0)
    normal = m.sub(cheap, m.reduced("sum", cheap, 1))
    second = m.call(normal, draws=True)
    third = m.call(m.add(first, 1.0), draws=True)
    made = rematerialized(graph(third, second), FEW_ROWS)
    calls = sorted((n for n in made.nodes() if n.op is Op.CALL), key=lambda node: node.serial)
    assert [n is made.outputs[i] for n, i in zip(calls[1:], (1, 0), strict=True)] == [True, True]
    assert calls[0] is first


def test_it_means_the_same() -> None:
    plan = plan_of(half_norm(Make()))
    x = np.random.default_rng(0).standard_normal((3, LENGTH)).astype(np.float16) + 4
    access = plan.graph.inputs[0].attrs.access
    (wanted,) = interpret_outputs(graph(half_norm(Make())), {access: x}, {}, precision="float64")
    (got,) = run_plan(plan, lower(plan), {access: x}, {})
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=1e-3)


def test_what_a_product_computes_behind_it_is_stored_by_it() -> None:
    m = Make()
    called = m.call(m.x("x", 3, LENGTH))
    shifted = m.add(called, 1.0)
    before = graph(m.sub(shifted, m.reduced("sum", shifted, 1)))
    of_a_kernel = rematerialized(before, FEW_ROWS, {called.serial})
    assert of_a_kernel is before
    assert rematerialized(before, FEW_ROWS) is not before, "of the library, both compute it"


def test_products_are_chosen_of_the_graph_that_is_planned() -> None:
    """One that reads what is made anew is a kernel still."""
    m = Make()
    shifted = m.add(m.x("x", 64, LENGTH), 1.0)
    centred = m.sub(shifted, m.reduced("sum", shifted, 1))
    weight = m.w("weight", 1024, LENGTH)
    plan = plan_of(m.product("linear", centred, weight, shape=(64, 1024)), target=EAGER)
    assert sum("add" in operations for operations in map(operations_of, plan.groups)) == 2
    assert [group.kind for group in plan.groups].count(GroupKind.CONTRACTION) == 1
