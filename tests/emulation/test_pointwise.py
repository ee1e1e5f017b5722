"""Functors of the pointwise skeleton compute the bits of kernels written out for one group."""

from __future__ import annotations

import random
from collections.abc import Sequence
from unittest import mock

import numpy as np
import pytest
from tests.kernels import executor, with_gaps
from tests.plan_meaning import run_plan
from tests.random_graphs import build, double, feeds_of

from opweld import render
from opweld.ir.kernels.kernel import Pointwise
from opweld.ir.plan import Plan
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render.cuda import texts as cuda
from opweld.render.cuda.pointwise import is_functor
from opweld.target import SM_90A

GRAPHS = 12


def text_of(kernels: Sequence[Pointwise], functors: bool) -> str:
    chosen = is_functor if functors else lambda _: False
    with mock.patch.object(cuda, "is_functor", chosen):
        return render.render("bits", tuple(kernels), "cuda").text


def results(
    plan: Plan, kernels: tuple[Pointwise, ...], text: str, gaps: bool
) -> dict[str, np.ndarray]:
    feeds = feeds_of(plan.graph, {"s0": 3})
    if gaps:
        feeds = {name: with_gaps(array) for name, array in feeds.items()}
    variant = "strided" if gaps else "contiguous"
    run = executor(text, "cuda")
    return run_plan(plan, kernels, feeds, {"s0": 3}, variant=variant, calls=double, execute=run)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_bits_as_kernels_of_their_own(seed: int) -> None:
    choice = random.Random(seed)
    graphs = [build(choice.choice) for _ in range(GRAPHS)]
    plans = [make_plan(g, SM_90A, suffix=f"_g{i}") for i, g in enumerate(graphs)]
    lowered = [lower(plan) for plan in plans]
    every = [kernel for kernels in lowered for kernel in kernels]
    assert sum(map(is_functor, every)) > GRAPHS // 3, "too few to say anything"
    texts = [text_of(every, functors) for functors in (True, False)]
    assert "op::pointwise<" in texts[0] and "op::pointwise<" not in texts[1]
    for plan, kernels in zip(plans, lowered, strict=True):
        for gaps in (False, True):
            ours, theirs = (results(plan, kernels, text, gaps) for text in texts)
            for mine, old in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(_bits(mine), _bits(old))


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)
