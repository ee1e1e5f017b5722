"""Lowered groups compute what the graph means, with the loads and lets that are expected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels import with_gaps
from tests.plan_meaning import run_plan
from tests.random_graphs import (
    assert_close_to,
    batches_of,
    double,
    exact_and_errors,
    feeds_of,
    graphs,
)
from tests.unit.ir.graphs import graph
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.attrs import CastAttrs, IotaAttrs
from opweld.ir.check import check
from opweld.ir.graph import Graph, Node
from opweld.ir.kernels.kernel import Access, Index, Kernel, Load, Pointwise
from opweld.ir.ops import Op
from opweld.ir.plan import Plan
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.target import CPU, SM_90A

SIZES = (1, 2, 5, 8)


def lowered(*outputs: Node, origins=()) -> tuple[Plan, tuple[Pointwise, ...]]:
    plan = plan_of(*outputs, origins=origins)
    kernels = lower(plan)
    for fused in kernels:
        check(fused)
    return plan, kernels


def one_kernel(*outputs: Node) -> Kernel:
    (fused,) = lowered(*outputs)[1]
    return fused.contiguous


def assert_means(graph: Graph, n: int, target=SM_90A) -> None:
    """Contiguous and strided kernels give the values of the graph."""
    plan = make_plan(graph, target)
    kernels = lower(plan)
    feeds = feeds_of(graph, {"s0": n})
    wanted = exact_and_errors(graph, feeds, {"s0": n})
    for variant in ("contiguous", "strided"):
        got = run_plan(plan, kernels, feeds, {"s0": n}, variant=variant, calls=double)
        assert_close_to(got, wanted, f"{variant}, batch {n}")


@given(graphs(calls=True), st.sampled_from([SM_90A, CPU]))
def test_random_graphs(graph: Graph, target) -> None:
    for n in batches_of(graph):
        assert_means(graph, n, target)


@given(graphs(only_views=True, dtypes=(DType.I64,)))
def test_random_views(graph: Graph) -> None:
    """Integers: any wrong address is a wrong result."""
    for n in batches_of(graph):
        assert_means(graph, n)


@given(graphs(), st.sampled_from(SIZES))
def test_strided_kernels_take_any_strides(graph: Graph, n: int) -> None:
    plan = make_plan(graph, SM_90A)
    kernels = lower(plan)
    feeds = feeds_of(graph, {"s0": n})
    wanted = exact_and_errors(graph, feeds, {"s0": n})
    spread = {name: with_gaps(array) for name, array in feeds.items()}
    got = run_plan(plan, kernels, spread, {"s0": n}, variant="strided")
    assert_close_to(got, wanted, f"batch {n}")


def loads(kernel: Kernel) -> list[str]:
    return [f"{d.buffer}[{d.address}]" for d in kernel.definitions if isinstance(d, Load)]


def test_each_operand_is_loaded_once_a_place() -> None:
    m = Make()
    x = m.x("x", BATCH, 8)
    assert loads(one_kernel(m.mul(m.add(x, x), m.exp(x)))) == ["x[i]"]
    assert loads(one_kernel(m.add(x, m.flip(x, 1)))) == ["x[i0 * 8 + i1]", "x[i0 * 8 - i1 + 7]"]


def test_nothing_of_a_view_is_left_but_addresses() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 6), m.x("y", 6, BATCH)
    kernel = one_kernel(m.add(m.permute(m.exp(x), 1, 0), y))
    assert loads(kernel) == ["x[i0 + i1 * 6]", "y[i0 * s0 + i1]"]
    assert [let.op for let in kernel.element.body] == [Op.EXP, Op.ADD]


def test_a_padded_load_is_guarded() -> None:
    m = Make()
    kernel = one_kernel(m.neg(m.pad(m.x("x", BATCH, 5), (0, 1), (0, 2))))
    (load,) = [d for d in kernel.definitions if isinstance(d, Load)]
    (guard,) = load.guard
    assert (str(guard.expr), guard.low, guard.high) == ("i1", 1, 6)
    assert [let.op for let in kernel.element.body] == [Op.WHERE, Op.NEG]


def test_the_pieces_of_a_cat_are_guarded() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 5), m.x("y", BATCH, 3)
    kernel = one_kernel(m.neg(m.cat(1, x, y)))
    found = [d for d in kernel.definitions if isinstance(d, Load)]
    assert [(d.buffer, d.guard[0].low, d.guard[0].high) for d in found] == [
        ("x", 0, 5),
        ("y", 5, 8),
    ]
    # The last piece is what the others leave: its test guards its load and chooses nothing.
    assert [name for name, _ in kernel.element.params] == ["inside_1", "x_1", "y_1"]


def test_the_second_half_of_an_axis_is_one_vector() -> None:
    m = Make()
    x = m.x("x", BATCH, 16)
    kernel = one_kernel(m.mul(m.slice(x, 1, 0, 8), m.slice(x, 1, 8, 8)))
    assert [d.access for d in kernel.definitions] == [Access.VECTOR, Access.VECTOR]


def test_element_and_names_are_the_same_in_both_kernels() -> None:
    m = Make()
    x, row = m.x("x", BATCH, 8), m.x("row", 8)
    (fused,) = lowered(m.add(m.mul(x, row), m.flip(x, 1)))[1]
    assert fused.contiguous.element == fused.strided.element
    assert fused.shape == (BATCH, 8)
    assert (fused.contiguous.lanes, fused.strided.lanes) == (4, 1)


def test_lets_bear_the_attributes_of_their_operation() -> None:
    """The choice of a cat, the cast of a position: their attributes are not those of the node."""
    m = Make()
    x = m.x("x", BATCH, 8)
    position = m.arena.iota(IotaAttrs(0.5, 0.25, 8), DType.F32)
    size = m.arena.const(BATCH, DType.F32)
    outputs = m.add(m.mul(m.cat(1, x, m.neg(x)), size), m.cat(0, position, position))
    check(lowered(outputs)[1][0])


def test_positions_and_sizes_are_integers_of_the_space() -> None:
    m = Make()
    position = m.arena.iota(IotaAttrs(3, -2, 8), DType.I64)
    x = m.x("x", BATCH, 8, dtype=DType.I64)
    kernel = one_kernel(m.add(m.mul(x, position), m.arena.const(BATCH * 2, DType.I64)))
    indices = [str(d.expr) for d in kernel.definitions if isinstance(d, Index)]
    assert indices == ["-2 * i1 + 3", "s0 * 2"]


def test_a_cast_says_where_it_comes_from() -> None:
    m = Make()
    x = m.x("x", BATCH, 8, dtype=DType.BF16)
    wide = m.arena.make(Op.CAST, x, attrs=CastAttrs(DType.F32))
    (cast, exp) = one_kernel(m.exp(wide)).element.body
    assert (cast.operands, cast.dtype, exp.operands) == (DType.BF16, DType.F32, DType.F32)


def test_the_user_s_line_stands_where_it_changes() -> None:
    m = Make()
    a = m.exp(m.x("x", 8))
    b = m.neg(a)
    c = m.tanh(b)
    first, second = ("f.py:3", "y = -x.exp()"), ("f.py:4", "return y.tanh()")
    origins = ((a.serial, first), (b.serial, first), (c.serial, second))
    (fused,) = lowered(c, origins=origins)[1]
    comments = [let.comment for let in fused.contiguous.element.body]
    assert comments == ["f.py:3  y = -x.exp()", "", "f.py:4  return y.tanh()"]


def test_operands_whose_names_clash_with_the_kernel_s() -> None:
    m = Make()
    names = ("i0", "s0", "value0", "result", "x_stride0", "x", "at", "float", "x_1")
    total = m.x(names[0], BATCH, 7)
    for name in names[1:]:
        total = m.add(total, m.x(name, BATCH, 7))
    (fused,) = lowered(total)[1]
    buffers = [buffer.name for buffer in fused.contiguous.buffers]
    assert len(set(buffers)) == len(names) + 1
    assert_means(graph(total), 3)


def test_a_long_chain_through_views_does_not_recurse_without_end() -> None:
    m = Make()
    value = m.x("x", 4, 6)
    for index in range(90):
        value = m.permute(m.reshape(m.permute(m.reshape(value, 4, 1, 6), 2, 1, 0), 6, 4), 1, 0)
        value = m.neg(value) if index % 2 else m.exp(value)
    plan, kernels = lowered(value)
    assert len(kernels) == 1
    assert len(kernels[0].contiguous.element.body) == 90


@pytest.mark.parametrize("n", [0, 1, 4])
def test_an_operand_without_elements(n: int) -> None:
    """Its reshape would divide by its size."""
    m = Make()
    x, y = m.x("x", BATCH, 0, 4), m.x("y", BATCH, 8)
    joined = m.cat(1, m.reshape(x, BATCH, 0), y)
    assert_means(graph(m.neg(joined)), n)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_batch_of_none_beside_something(n: int) -> None:
    m = Make()
    x, y = m.x("x", BATCH, 4), m.x("y", 3, 4)
    joined = m.cat(0, m.exp(x), m.flip(y, 1))
    assert_means(graph(m.neg(joined)), n)


def test_a_scalar_graph() -> None:
    m = Make()
    x = m.x("x")
    kernel = one_kernel(m.exp(x))
    assert [(loop.var, loop.extent) for loop in kernel.loops] == [("i", 1)]
    assert_means(graph(m.exp(x)), 1)


def test_a_padded_axis_that_is_then_reshaped() -> None:
    """Coordinates below zero outside the guard, divided by the reshape."""
    for before, shape in pads_and_shapes():
        m = Make()
        x = m.x("x", BATCH, 2, 4, dtype=DType.I64)
        flat = m.reshape(x, BATCH, 8)
        padded = m.pad(flat, (0, before), (0, 3 - before))
        result = m.add(m.reshape(padded, *shape), m.const(1, DType.I64))
        assert_means(graph(result), 3)


def test_a_padding_of_nothing_is_nothing() -> None:
    m = Make()
    kernel = one_kernel(m.neg(m.pad(m.x("x", BATCH, 5), (0, 0), (0, 0))))
    assert loads(kernel) == ["x[i]"] and not kernel.definitions[0].guard


def test_a_division_of_what_begins_below_zero() -> None:
    """In i0 + (i1 - 1) / 4 the division would give 0 for -1; the whole sum must be divided."""
    m = Make()
    x = m.x("x", 3, 4, dtype=DType.I64)
    padded = m.pad(m.reshape(x, 12), (1,), (3,))
    assert_means(graph(m.add(m.reshape(padded, 4, 4), m.const(1, DType.I64))), 1)


def test_guards_of_what_is_outside_hold_inside() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 5), m.x("y", BATCH, 3)
    both = m.cat(1, x, m.pad(y, (0, 1), (0, 0)))
    assert_means(graph(m.neg(m.pad(both, (2, 0), (1, 0)))), 3)
    assert_means(
        graph(m.neg(m.cat(0, m.pad(both, (0, 0), (0, 2)), m.pad(both, (1, 2), (0, 0))))), 3
    )


def pads_and_shapes() -> list[tuple[int, tuple[object, ...]]]:
    return [(b, shape) for b in (0, 1, 2, 3) for shape in ((BATCH, 11), (11, BATCH), (BATCH * 11,))]
