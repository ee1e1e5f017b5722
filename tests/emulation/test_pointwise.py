"""Functors of the pointwise skeleton compute the bits of kernels written out for one group."""

from __future__ import annotations

import random
from collections.abc import Sequence
from unittest import mock

import numpy as np
import pytest
from tests.emulation.emulate import EmulationFault, emulate
from tests.kernels import executor, with_gaps
from tests.plan_meaning import run_plan
from tests.random_graphs import build, double, feeds_of
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld import render
from opweld.device import pieces
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


def gated() -> tuple[Plan, tuple[Pointwise, ...]]:
    """Halves of a tensor, an element of each of its rows, and what lies across them."""
    m = Make()
    y, x = m.x("y", BATCH, 40, 16), m.x("x", BATCH, 8, 40)
    halves = m.mul(m.slice(y, 2, 0, 8), m.slice(y, 2, 8, 8))
    both = m.add(m.mul(halves, m.slice(y, 2, 5, 1)), m.permute(x, 0, 2, 1))
    both = m.mul(m.slice(both, 0, 0, BATCH - 1), m.slice(m.x("z", BATCH, 40, 8), 0, 1, BATCH - 1))
    plan = plan_of(both, target=SM_90A)
    return plan, lower(plan)


def test_parts_of_operands_are_read_where_they_lie() -> None:
    plan, kernels = gated()
    text, own = text_of(kernels, True), text_of(kernels, False)
    assert "op::Part<float, 3>" in text and "op::pointwise_transposed<" in text
    for gaps in (False, True):
        (ours,), (theirs,) = (results(plan, kernels, each, gaps) for each in (text, own))
        np.testing.assert_array_equal(_bits(ours), _bits(theirs))


@pytest.mark.parametrize("shape", [(3, 40, 15), (1, 40, 16), (3, 640)])
def test_a_part_that_is_not_there_fits_nowhere(shape: tuple[int, ...]) -> None:
    (kernel,) = gated()[1]
    run = executor(text_of([kernel], True), "cuda")
    sizes = ((3, 40, 16), (3, 8, 40), (3, 40, 8))
    y, *others = (np.zeros(each, np.float32) for each in sizes)
    run(kernel.contiguous, [y, *others], {"s0": 3})
    with pytest.raises(EmulationFault, match="-[12]"):
        run(kernel.contiguous, [np.zeros(shape, np.float32), *others], {"s0": 3})


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 112, 3136, 2**16 + 1, 2**30 + 3, 2**31 - 1])
def test_positions_are_divided_exactly(size: int) -> None:
    """By multiplication, up to the largest that 32-bit indices have."""
    launcher = """
extern "C" int quotients(int64_t size, const int64_t* at, int64_t* found, int64_t n, void* stream) {
  const op::Divisor divisor(size);
  for (int64_t i = 0; i < n; ++i) found[i] = divisor.quotient(uint32_t(at[i]));
  return 0;
}
"""
    near = [size * k + d for k in (0, 1, 2, 3, 100, (2**31 - 1) // size) for d in (-1, 0, 1)]
    at = np.array([x for x in (*near, 2**31 - 1) if 0 <= x < 2**31], np.int64)
    found = np.full_like(at, -1)
    emulate("\n".join([*pieces(("Divisor",)), launcher]), "quotients", [size, at, found, at.size])
    np.testing.assert_array_equal(found, at // size)
