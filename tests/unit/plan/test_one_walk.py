"""Which folds of a graph one walk completes, and that they mean the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.capturing import graph_of, module_of
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.attrs import CastAttrs
from opweld.ir.graph import Graph, Node, arena_of
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.ops import Kind, Op
from opweld.ir.types import DType
from opweld.plan.rows import KEPT_EACH, LONG_ROW, Parallelism
from opweld.plan.single_pass import in_one_walk
from opweld.simplify import simplify

EVERY_ROW = Parallelism(held_elems=0)


def folds_of(graph: Graph) -> list[str]:
    return sorted(n.op.value for n in graph.nodes() if n.kind is Kind.REDUCTION)


def rewritten(*outputs: Node) -> list[str]:
    return folds_of(in_one_walk(graph(*outputs), EVERY_ROW))


def squares(m: Make, x: Node, count: Node | float, *axes: int) -> Node:
    difference = m.sub(x, m.div(m.reduced("sum", x, *axes), count))
    return m.reduced("sum", m.mul(difference, difference), *axes)


def test_the_sum_of_powers_and_of_squares_need_no_other_fold() -> None:
    m = Make()
    x = m.x("x", BATCH, 6, 10)
    assert rewritten(m.softmax(x, 1)) == ["amax", "sumexp"]
    assert rewritten(squares(m, x, 60.0, 1, 2)) == ["devsq"]
    assert rewritten(m.standardised(x, 2)) == ["devsq", "sum"]
    by_product = m.sub(x, m.mul(m.reduced("sum", x, 2), 0.125))
    assert rewritten(m.reduced("sum", m.mul(by_product, by_product), 2)) == ["sum", "sum"]


@pytest.mark.parametrize("shape", [(6, 8), (6, 10)])
def test_a_mean_shares_the_walk_of_the_squares(shape: tuple[int, ...]) -> None:
    m = Make()
    x = m.x("x", BATCH, *shape)
    middle = m.reduced("mean", x, 2)
    difference = m.sub(x, middle)
    total = m.reduced("sum", m.mul(difference, difference), 2)
    assert rewritten(m.mul(difference, total)) == ["devsq", "mean"]
    assert rewritten(total) == ["devsq"]
    away = m.sub(x, m.reduced("mean", x, 1))
    assert rewritten(m.reduced("sum", m.mul(away, away), 2)) == ["mean", "sum"]


def test_a_length_that_is_a_power_of_two_is_divided_by_as_a_product() -> None:
    m = Make()
    x = m.x("x", BATCH, 8)
    difference = m.sub(x, m.mul(m.reduced("sum", x, 1), 0.125))
    assert rewritten(m.reduced("sum", m.mul(difference, difference), 1)) == ["devsq"]


def test_what_only_looks_alike_stays() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 6, 10), m.x("y", BATCH, 6, 10)
    assert rewritten(squares(m, x, 59.0, 1, 2)) == ["sum", "sum"]
    largest = m.reduced("amax", x, 1)
    for other in (m.sub(y, largest), m.sub(x, m.reduced("amin", x, 1)), m.sub(largest, x)):
        assert "sumexp" not in rewritten(m.reduced("sum", m.exp(other), 1))
    assert "sumexp" not in rewritten(m.reduced("sum", m.exp(m.sub(x, largest)), 2))
    away = m.sub(x, m.div(m.reduced("sum", x, 1), 6.0))
    assert rewritten(m.reduced("sum", m.mul(away, away), 2)) == ["sum", "sum"]


def test_rows_that_are_held_stay_as_they_are() -> None:
    m = Make()
    for shape, sizes, long in (
        ((64, LONG_ROW), (), False),
        ((64, LONG_ROW + 1), (), True),
        ((64, BATCH), (("s0", 100),), False),
        ((64, BATCH), (("s0", 10**6),), True),
    ):
        before = graph(m.softmax(m.x("x", *shape), 1))
        after = in_one_walk(before, Parallelism(sizes=sizes, held_elems=LONG_ROW))
        assert (after is before) is not long
        assert ("sumexp" in folds_of(after)) is long
    before = graph(m.softmax(m.x("x", 64, 10**7), 1))
    assert in_one_walk(before, Parallelism()) is before
    cut = in_one_walk(graph(m.softmax(m.x("x", 4, 10**7), 1)), Parallelism(rows=16))
    assert folds_of(cut) == ["amax", "sumexp"]


def test_what_a_multiprocessor_keeps_is_bytes() -> None:
    m = Make()
    most = 8 * KEPT_EACH
    x, y = m.x("x", 4096, most), m.x("y", 4096, most)
    half = m.x("half", 4096, 2 * most, dtype=DType.F16)
    row, longer = m.x("row", most), m.x("longer", 4096, most + 4)
    wide = m.arena.make(Op.CAST, half, attrs=CastAttrs(DType.F32))
    of_clusters = Parallelism(264, 8, held_elems=LONG_ROW)
    for operand, again in (
        (m.mul(x, row), False),
        (longer, True),
        (m.add(m.mul(x, x), y), True),
        (wide, False),
    ):
        after = in_one_walk(graph(m.softmax(operand, 1)), of_clusters)
        assert ("sumexp" in folds_of(after)) is again


FUNCTIONS = {
    "softmax": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "logsumexp": lambda x: torch.logsumexp(x, (1, 2)),
    "var": lambda x: torch.var(x, (1, 2)),
    "std": lambda x: torch.std(x, 2, correction=0),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[1:]),
    "group_norm": lambda x: torch.nn.functional.group_norm(x, 3),
    "half": lambda x: torch.softmax(x.half(), 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_captured_functions_keep_their_values(name: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 6, 8)).astype(np.float32)
    x[1, 2, 3], x[2], x[3, 0, 0], x[4, 1, 1] = -np.inf, -np.inf, np.inf, np.nan
    captured = graph_of(module_of(lambda self, x: FUNCTIONS[name](x)), torch.from_numpy(x))
    before = simplify(captured, arena_of(captured)).graph
    after = in_one_walk(before, EVERY_ROW)
    assert any(n.op in (Op.SUMEXP, Op.DEVSQ) for n in after.nodes())
    access = before.inputs[0].attrs.access
    with np.errstate(all="ignore"):
        wanted, got = (
            interpret_outputs(g, {access: x}, {}, precision="float64") for g in (before, after)
        )
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-12, atol=1e-12)
