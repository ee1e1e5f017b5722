"""Whatever schedule is tried, a kernel computes the same: by emulation, and past nvcc."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels import run_groups
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.graph import Graph
from opweld.ir.measured import Table
from opweld.ir.plan import Conditions
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.plan.measured import pointwise_class
from opweld.plan.tunable import tunables
from opweld.render import render
from opweld.target import CPU, SM_90A, Target

COLUMNS = 24


def broadcasts(dtype: DType = DType.F32) -> Graph:
    m = Make()
    x, row = m.x("x", BATCH, COLUMNS, dtype=dtype), m.x("row", COLUMNS, dtype=dtype)
    return graph(m.tanh(m.mul(x, row)))


def tables(g: Graph, target: Target) -> list[Table]:
    """One for each schedule that may be tried for the only group."""
    plan = make_plan(g, target)
    (found,) = tunables(g, plan, target, Conditions(), Table())
    assert found.shape == pointwise_class(plan.groups[0], ())
    return [Table(tried=((found.shape, schedule),)) for schedule in found.schedules]


@pytest.mark.parametrize(("language", "target"), [("cuda", SM_90A), ("c++", CPU)])
def test_schedules_change_no_bit(language: str, target: Target) -> None:
    """The widest and deepest ones, and one lane, on a last block that is not full."""
    g = broadcasts()
    rows = 129
    x = np.linspace(-3, 3, rows * COLUMNS, dtype=np.float32).reshape(rows, COLUMNS)
    row = np.linspace(-1, 2, COLUMNS, dtype=np.float32)

    def run(table: Table) -> np.ndarray:
        feeds, sizes = {"x": x, "row": row}, {"s0": rows}
        return run_groups(g, feeds, sizes, language=language, table=table)[0]

    first, *others = tables(g, target)
    expected = run(first)
    assert np.allclose(expected, np.tanh(x * row), atol=1e-6)
    for table in (others[len(others) // 2], others[-1]):
        assert np.array_equal(run(table), expected), table.tried


@needs_nvcc
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F64])
def test_the_largest_schedules_spill_nothing(dtype: DType) -> None:
    g = broadcasts(dtype)
    largest = max(tables(g, SM_90A), key=lambda t: (t.tried[0][1].lanes, t.tried[0][1].vectors))
    plan = make_plan(g, SM_90A, table=largest)
    assert plan.groups[0].schedule == largest.tried[0][1]
    require_no_spills(compile_cuda(render("g", lower(plan), "cuda").text))
