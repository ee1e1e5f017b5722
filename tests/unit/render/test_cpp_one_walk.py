"""Folds that take in several elements at once, as C++: every edge of spans, and hard rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.kernels import with_gaps
from tests.one_walk import (
    CUT,
    UNCUT,
    finite_powers,
    hard_rows,
    layer_norm,
    masked_scores,
    moments,
    moments_across,
    moments_double,
    outputs_of,
    powers,
    powers_across,
    sizes_of,
    softmax,
    softmax_across,
    softmax_double,
    softmax_half,
    values,
)
from tests.reduction_kernels import run_reduction
from tests.unit.plan.plans import Make, graph, plan_of

from opweld.ir.expr import evaluate
from opweld.ir.graph import Node
from opweld.ir.kernels.reduction import Reduction
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.plan import Group
from opweld.lower import lower
from opweld.render import render
from opweld.target import CPU

Graphs = Callable[[Make], tuple[Node, ...]]


@cache
def case_of(make: Graphs) -> tuple[Group, Reduction]:
    plan = plan_of(*outputs_of(make), target=CPU, suffix=f"_{make.__name__}")
    (group,), (reduction,) = plan.groups, lower(plan)
    assert isinstance(reduction, Reduction)
    return group, replace(reduction, cut=make in CUT)


@cache
def text() -> str:
    reductions = tuple(case_of(make)[1] for make in (*UNCUT, *CUT))
    return render("case", reductions, "c++").text


def check(
    make: Graphs,
    feeds: Mapping[str, np.ndarray],
    pieces: tuple[int, ...] = (1, 3),
    **tolerance: float,
) -> None:
    """Every way to call a reduction gives what the graph means."""
    (group, reduction), sizes = case_of(make), sizes_of(feeds["x"])
    with np.errstate(all="ignore"):
        before = graph(*group.outputs)
        wanted = interpret_outputs(before, feeds, sizes, precision="float64")
    shapes = [[evaluate(size, sizes) for size in node.type.shape] for node in group.outputs]
    for variant in ("contiguous", "strided"):
        operands = [feeds[node.attrs.access] for node in group.inputs]
        given = [with_gaps(a) for a in operands] if variant == "strided" else operands
        for number in pieces if reduction.cut else (1,):
            got = run_reduction(
                reduction, given, sizes, shapes, variant=variant, pieces=number, text=text()
            )
            for mine, theirs in zip(got, wanted, strict=True):
                with np.errstate(over="ignore"):
                    theirs = theirs.astype(mine.dtype)
                np.testing.assert_allclose(mine, theirs, **tolerance, err_msg=variant)


@pytest.mark.parametrize("length", [4, 60, 64, 68, 1020, 1024, 1028, 5000])
def test_rows_of_any_length(length: int) -> None:
    x = 3 * values(5, length)
    check(softmax, {"x": x}, rtol=2e-6)
    check(powers, {"x": x}, rtol=1e-6)
    check(moments, {"x": x + 9}, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 1, 4), (2, 15, 8), (3, 33, 132), (1, 1030, 4)], ids=str)
def test_columns_of_any_length(shape: tuple[int, ...]) -> None:
    x = 3 * values(*shape)
    check(softmax_across, {"x": x}, rtol=2e-6)
    check(powers_across, {"x": x}, rtol=1e-6)
    check(moments_across, {"x": x + 9}, rtol=1e-6, atol=1e-12)


def test_other_types_and_folds() -> None:
    check(softmax_half, {"x": values(11, 264, dtype=np.float16)}, rtol=1e-3, atol=1e-7)
    check(softmax_double, {"x": values(11, 90, dtype=np.float64)}, rtol=1e-13)
    check(moments_double, {"x": values(5, 90, dtype=np.float64)}, rtol=1e-13, atol=1e-12)
    check(masked_scores, {"x": values(9, 520), "bias": 2 * values(520, seed=1)}, rtol=2e-6)
    feeds = {"x": values(9, 3, 88) + 3, "weight": values(3, 88)}
    check(layer_norm, feeds, rtol=2e-5, atol=3e-6)


def test_hard_rows() -> None:
    x = hard_rows()
    check(powers, {"x": x}, rtol=1e-6)
    check(softmax, {"x": x}, rtol=2e-6, atol=1e-37)
    check(finite_powers, {"x": x}, rtol=1e-6)
    check(moments, {"x": x}, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("step", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("make", [powers, powers_across], ids=lambda make: make.__name__)
def test_a_row_that_ascends_moves_its_sum_seldom(make: Graphs, step: float) -> None:
    ascending = (np.arange(32768) * np.float32(step)).astype(np.float32)
    x = ascending[None] if make is powers else np.repeat(ascending[None, :, None], 4, 2)
    check(make, {"x": x}, rtol=4e-7)


def test_a_mean_far_from_zero_and_a_huge_element() -> None:
    x = values(2, 8192) + np.float32(1e6)
    check(moments, {"x": x}, rtol=1e-6)
    across = values(2, 4000, 4) + np.float32(1e6)
    check(moments_across, {"x": across}, rtol=1e-6)
    for place in (0, 4000, 8191):
        x = values(1, 8192)
        x[0, place] = 1e12
        check(moments, {"x": x}, rtol=1e-6)
        check(powers, {"x": x}, rtol=0)
