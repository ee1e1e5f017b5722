"""Random graphs of products, what scales and shifts them, sums and functions mean the same after
simplification: values and derivatives, NaN and infinities.
"""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.rules.linear_graphs import Maker, as_tensors, feeds_of, gradients_of, values_of
from tests.unit.ir.graphs import graph

from opweld.ir.attrs import SliceAttrs
from opweld.ir.check import check
from opweld.ir.graph import Arena, Graph, Node
from opweld.ir.ops import Op
from opweld.ir.rules.algebra import Algebra
from opweld.ir.rules.costs import Costs
from opweld.ir.text import to_text
from opweld.simplify import simplify

relaxed = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
COSTS = Costs(flops_per_s=1.0, bytes_per_s=1e30)  # products of any size pay
STEPS = (
    *("linear", "linear", "scale", "shift", "sum", "sum", "groups", "relu", "add", "slice"),
    *("linear", "linear", "norm", "weigh", "diagonal"),
)


@st.composite
def graphs(draw) -> tuple[Graph, Arena]:
    arena = Arena()
    m = Maker(arena)
    values = [m.input("x", draw(st.sampled_from((3, 40))), 8)]
    for number in range(draw(st.integers(2, 9))):
        values.append(_drawn(draw, m, values, number))
    last = values[-1], draw(st.sampled_from(values[1:]))
    return graph(*dict.fromkeys(last)), arena


def _drawn(draw, m: Maker, values: list[Node], number: int) -> Node:
    # The last values most often: chains are what rules fit.
    x = values[-1] if draw(st.booleans()) else draw(st.sampled_from(values))
    step = draw(st.sampled_from(STEPS))
    constant = m.number(draw(st.sampled_from((2.0, -0.5, 0.125, 3.0))))
    last = x.type.rank - 1
    width = x.type.shape[last]
    if step == "linear":
        return m.linear(x, draw(st.sampled_from((4, 8, 16))), f"fc{number}", draw(st.booleans()))
    if step == "groups" and width % 4 == 0 and x.type.rank < 4:
        return m.reshape(x, *x.type.shape[:-1], width // 4, 4)
    if step == "sum":
        return m.sum(x, draw(st.sampled_from((last, last, 0))))
    if step == "add":
        other = draw(st.sampled_from([v for v in values if v.type.shape == x.type.shape]))
        return m.make(Op.ADD, x, other)
    if step == "slice":
        axis = draw(st.integers(0, last))
        start = draw(st.integers(0, x.type.shape[axis] - 1))
        return m.make(Op.SLICE, x, attrs=SliceAttrs(axis, start, 1, 1))
    if step == "norm":
        moved = m.make(Op.SUB, x, m.weight(f"mean{number}", width))
        return m.make(Op.MUL, moved, m.weight(f"s{number}", width))
    if step == "weigh":
        return m.sum(m.make(Op.MUL, x, m.weight(f"v{number}", width)), last)
    if step == "diagonal":
        matrix = m.call("diag.default", (width, width), m.weight(f"a{number}", width))
        return m.call("matmul.default", x.type.shape, x, matrix)
    if step == "relu":
        return m.make(Op.RELU, x)
    op = draw(st.sampled_from((Op.MUL, Op.DIV) if step == "scale" else (Op.ADD, Op.SUB)))
    return m.make(op, x, constant)


@relaxed
@given(graphs(), st.integers(0, 1000), st.sampled_from((Algebra.EXACT, Algebra.FINITE)))
def test_ordinary_values_and_derivatives(drawn, seed, algebra):
    before, arena = drawn
    after = simplify(before, arena, algebra=algebra, costs=COSTS).graph
    check(after)
    feeds = as_tensors(feeds_of(before, seed))
    text = to_text(before) + to_text(after)
    for expected, got in zip(values_of(before, feeds), values_of(after, feeds), strict=True):
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-11 * scale, err_msg=text)
    expected, got = gradients_of(before, feeds), gradients_of(after, feeds)
    for name, gradient in expected.items():
        scale = max(1.0, float(np.abs(gradient).max()))
        np.testing.assert_allclose(got[name], gradient, rtol=1e-9, atol=1e-11 * scale, err_msg=text)


@relaxed
@given(graphs(), st.integers(0, 1000))
def test_nan_and_infinities(drawn, seed):
    before, arena = drawn
    after = simplify(before, arena, costs=COSTS).graph
    feeds = feeds_of(before, seed)
    rng = np.random.default_rng(seed)
    feeds["x"].flat[rng.integers(feeds["x"].size)] = rng.choice([np.inf, -np.inf, np.nan])
    for name, values in feeds.items():
        if name.endswith("weight") and rng.random() < 0.5:
            feeds[name] = np.abs(values)
    tensors = as_tensors(feeds)
    for expected, got in zip(values_of(before, tensors), values_of(after, tensors), strict=True):
        scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)))
        np.testing.assert_allclose(
            got, expected, rtol=1e-9, atol=1e-11 * scale, err_msg=to_text(before) + to_text(after)
        )


@relaxed
@given(graphs(), st.sampled_from((Algebra.EXACT, Algebra.FINITE)))
def test_a_second_run_changes_nothing(drawn, algebra):
    before, arena = drawn
    once = simplify(before, arena, algebra=algebra, costs=COSTS).graph
    assert to_text(simplify(once, arena, algebra=algebra, costs=COSTS).graph) == to_text(once)
