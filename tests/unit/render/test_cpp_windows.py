"""Reductions of windows as C++: what lies outside is left out where that changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.emulation.test_windows import CASES, values
from tests.kernels import with_gaps
from tests.reduction_kernels import reduction_of, run_reduction
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.expr import evaluate
from opweld.ir.graph import Node
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.types import DType
from opweld.render import render

INF = float("inf")
Outputs = tuple[Node, ...]


def filled(m: Make) -> Outputs:
    """Padding that is larger than some windows."""
    seen = m.windows(m.x("x", BATCH, 8, 9), (3, 2, 1, 1), (3, 1, 1, 1), outside=0.5)
    return (m.reduced("amax", seen, 0, 1),)


def narrow(m: Make) -> Outputs:
    """Least integers around, and lanes of which many windows have none."""
    x = m.x("x", BATCH, 3, 3, dtype=DType.I32)
    seen = m.windows(x, (5, 1, 2, 1), (5, 1, 2, 1), outside=-(2**31))
    return m.reduced("amax", seen, 0, 1), m.reduced("argmax", seen, 0, 1)


def wide(m: Make) -> Outputs:
    """More windows in a row than there are lanes."""
    seen = m.windows(m.x("x", BATCH, 1100), (4, 1, 2, 3), outside=-INF)
    return m.reduced("amax", seen, 0), m.reduced("argmax", seen, 0)


def least(m: Make) -> Outputs:
    seen = m.windows(m.x("x", BATCH, 6, 70), (3, 1, 1, 1), (7, 3, 3, 1), outside=INF)
    return m.reduced("amin", seen, 0, 1), m.reduced("argmin", seen, 0, 1)


def run(make: Callable[[Make], Outputs], feeds: dict[str, np.ndarray], variant: str) -> None:
    outputs = make(Make())
    reduction, whole = reduction_of(*outputs), graph(*outputs)
    sizes = {"s0": len(feeds["x"])}
    wanted = interpret_outputs(whole, feeds, sizes, precision="float64")
    shapes = [[evaluate(size, sizes) for size in node.type.shape] for node in outputs]
    names = [buffer.name for buffer in reduction.buffers if not buffer.written]
    given = [with_gaps(feeds[n]) if variant == "strided" else feeds[n] for n in names]
    got = run_reduction(reduction, given, sizes, shapes, variant=variant)
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.parametrize("variant", ["contiguous", "strided"])
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_windows(make: Callable[[Make], Outputs], variant: str) -> None:
    run(make, values(make, 5, hard=make.__name__ != "long"), variant)


@pytest.mark.parametrize("variant", ["contiguous", "strided"])
@pytest.mark.parametrize("make", [filled, narrow, wide, least], ids=lambda make: make.__name__)
def test_edges(make: Callable[[Make], Outputs], variant: str) -> None:
    rng = np.random.default_rng(5)
    (x,) = graph(*make(Make())).inputs
    shape = [3 if size == BATCH else size for size in x.type.shape]
    data = (rng.integers(-9, 10, shape) / 4).astype(np.float32)
    if make is narrow:
        data = rng.integers(-9, 10, shape).astype(np.int32)
        data[1] = -(2**31)
    else:
        data[rng.random(shape) > 0.7] = np.nan
        data[1] = -INF
        data[2] = INF
    run(make, {"x": data}, variant)


@pytest.mark.parametrize(("make", "guarded"), [(filled, True), (narrow, False), (least, False)])
def test_padding_that_changes_nothing_is_not_asked_about(
    make: Callable[[Make], Outputs], guarded: bool
) -> None:
    text = render("case", (reduction_of(*make(Make())),), "c++").text
    assert ("? x[" in text) is guarded
    assert ("lane = from" in text) is not guarded
