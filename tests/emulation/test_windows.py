"""Reductions of windows as CUDA text: a thread for each, or one for several that overlap."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tests.emulation.reductions import Case, case, exact, run
from tests.kernels import with_gaps
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from tests.unit.plan.plans import BATCH, Make

from opweld.ir.graph import Node
from opweld.ir.plan import ReductionSchedule
from opweld.ir.types import DType
from opweld.render.cuda.texts import cuda_text

INF = float("inf")
Outputs = tuple[Node, ...]


def same_size(m: Make) -> Outputs:
    """Padded on all sides, a ReLU before and a scale behind."""
    x = m.relu(m.x("x", BATCH, 3, 12, 10))
    seen = m.windows(x, (3, 1, 1, 1), (3, 1, 1, 1), outside=-INF)
    return (m.mul(m.reduced("amax", seen, 0, 1), m.w("scale", 3, 1, 1)),)


def side_by_side(m: Make) -> Outputs:
    """The largest and where it is, in half precision."""
    seen = m.windows(m.x("x", BATCH, 8, 10, dtype=DType.F16), (2, 2, 0, 1), (2, 2, 0, 1))
    return m.reduced("amax", seen, 0, 1), m.reduced("argmax", seen, 0, 1)


def dilated(m: Make) -> Outputs:
    seen = m.windows(m.x("x", BATCH, 4, 41), (5, 3, 2, 4), outside=-INF)
    return m.reduced("amax", seen, 0), m.reduced("argmax", seen, 0)


def mean(m: Make) -> Outputs:
    """Overlapping below each other, not beside each other."""
    seen = m.windows(m.x("x", BATCH, 12, 12), (4, 2, 1, 1), (3, 3, 0, 1), outside=0.0)
    return (m.div(m.reduced("sum", seen, 0, 1), 12.0),)


def cubes(m: Make) -> Outputs:
    """More elements than are written out one after another."""
    x = m.x("x", BATCH, 2, 9, 10, 11, dtype=DType.F64)
    return (m.reduced("amax", m.windows(x, (4, 1, 0, 1), (4, 2, 0, 1), (4, 3, 0, 2)), 0, 1, 2),)


def long(m: Make) -> Outputs:
    return (m.reduced("sum", m.windows(m.x("x", BATCH, 60), (40, 2, 0, 1)), 0),)


def integers(m: Make) -> Outputs:
    x = m.x("x", BATCH, 9, 9, dtype=DType.I64)
    return (m.reduced("amax", m.windows(x, (3, 2, 0, 1), (3, 2, 0, 1)), 0, 1),)


def layers(m: Make) -> Outputs:
    """Above and behind each other, some of them folded twice."""
    seen = m.windows(
        m.x("x", BATCH, 7, 9, 9), (3, 1, 1, 1), (4, 2, 2, 2), (2, 2, 2, 2), outside=-INF
    )
    return (m.reduced("amax", seen, 0, 1, 2),)


def layers_apart(m: Make) -> Outputs:
    """Their means, where each begins at the third element of the one before."""
    seen = m.windows(
        m.x("x", BATCH, 9, 7, 9), (3, 2, 1, 1), (3, 2, 1, 1), (3, 2, 1, 1), outside=0.0
    )
    return (m.div(m.reduced("sum", seen, 0, 1, 2), 27.0),)


def places(m: Make) -> Outputs:
    """Above each other, each of which has other places for what they share."""
    seen = m.windows(m.x("x", BATCH, 9, 9), (3, 1, 0, 1), (2, 2, 0, 1))
    return m.reduced("amax", seen, 0, 1), m.reduced("argmax", seen, 0, 1)


CASES = (
    *(same_size, side_by_side, dilated, mean, cubes, long, integers),
    *(layers, layers_apart, places),
)
LANES = {
    same_size: (4,),
    mean: (2,),
    cubes: (4,),
    integers: (4,),
    layers: (4, 4),
    layers_apart: (2, 4),
    places: (4,),
}
HARD = np.array([np.nan, INF, -INF, 0.0, -0.0])


@cache
def case_of(make: Callable[[Make], Outputs]) -> Case:
    return case(make.__name__, *make(Make()))


@cache
def text() -> str:
    return cuda_text(tuple(case_of(make).reduction for make in CASES))


def values(make: Callable[[Make], Outputs], batch: int, hard: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    feeds = {}
    for node in case_of(make).group.inputs:
        shape = [batch if size == BATCH else size for size in node.type.shape]
        x = rng.integers(-8, 9, shape) / 4
        if hard and node.type.dtype.is_float:
            chosen = rng.random(shape) > 0.8
            x[chosen] = rng.choice(HARD, chosen.sum())
            x[0] = -INF
        feeds[node.attrs.access] = x.astype(
            {"f16": np.float16, "f64": np.float64, "i64": np.int64}.get(
                node.type.dtype.value, np.float32
            )
        )
    return feeds


CALLS: tuple[dict[str, object], ...] = (
    {},
    {"aligned": False},
    {"wide": True},
    {"variant": "strided"},
    {"order": "seeded"},
)


def check(make: Callable[[Make], Outputs], kernels: str, feeds: dict[str, np.ndarray]) -> None:
    sizes = {"s0": len(feeds["x"])}
    wanted = exact(case_of(make), feeds, sizes)
    for options in CALLS:
        strided = options.get("variant") == "strided"
        given = {n: with_gaps(a) for n, a in feeds.items()} if strided else feeds
        got = run(kernels, case_of(make), given, sizes, **options)  # type: ignore[arg-type]
        for mine, theirs in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, err_msg=str(options))


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("batch", [1, 5])
def test_one_window_a_thread(make: Callable[[Make], Outputs], batch: int) -> None:
    schedule = case_of(make).group.schedule
    assert isinstance(schedule, ReductionSchedule)
    assert schedule.alone and not schedule.cut
    lanes = (schedule.layers, schedule.lanes) if schedule.layers > 1 else (schedule.lanes,)
    assert lanes == LANES.get(make, (1,))
    check(make, text(), values(make, batch, hard=make is not long))


@pytest.mark.parametrize("make", LANES, ids=lambda make: make.__name__)
def test_several_windows_a_thread(make: Callable[[Make], Outputs]) -> None:
    """As where there are many: the limit is lowered, and with layers that of one layer, too."""
    for together in (math.prod(LANES[make]), LANES[make][-1]):
        limit = f"num_rows >= {together * 1024}ll * op::num_multiprocessors()"
        assert limit in text()
        check(make, text().replace(limit, "num_rows >= 0"), values(make, 3, hard=True))


def test_windows_of_few_elements_in_turns() -> None:
    """As where there are many: a block with all of its windows, and one without."""
    limit = f"num_rows >= {4 * 1024}ll * op::num_multiprocessors()"
    assert limit in text()
    check(side_by_side, text().replace(limit, "num_rows >= 0"), values(side_by_side, 29, hard=True))


@needs_nvcc
def test_nvcc_takes_it_without_warnings_and_spills() -> None:
    require_no_spills(compile_cuda(text()))
