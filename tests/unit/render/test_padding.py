"""Padding that is loaded as its constant."""

from __future__ import annotations

import pytest
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.graph import Node
from opweld.ir.kernels.kernel import Kernel
from opweld.ir.kernels.reduction import Reduction
from opweld.lower import lower
from opweld.render.cuda.texts import cuda_text
from opweld.render.padding import known_inside, padded

WINDOW = (3, 1, 1, 1)


def reduction_of(*outputs: Node) -> Reduction:
    (reduction,) = lower(plan_of(*outputs))
    assert isinstance(reduction, Reduction)
    return reduction


def walk_of(reduction: Reduction) -> Kernel:
    (step,) = reduction.contiguous.steps
    return step.walk.kernel


@pytest.mark.parametrize("outside", [float("-inf"), 0.5])
def test_what_is_only_padded_is_loaded_as_the_constant(outside: float) -> None:
    m = Make()
    seen = m.windows(m.x("x", BATCH, 9, 10), WINDOW, WINDOW, outside=outside)
    reduction = reduction_of(m.reduced("amax", seen, 0, 1))
    assert list(padded(walk_of(reduction))) == ["x_1"]
    assert known_inside(walk_of(reduction)) == {"inside_1"}
    text = cuda_text((reduction,))
    constant = "0.5f" if outside == 0.5 else "-op::kInfinity<float>"
    assert text.count(f": {constant};") == 3  # the element's, and a load in each kernel
    assert "pass0(true, x_1)" in text


def test_what_is_computed_before_it_is_padded_is_chosen_afterwards() -> None:
    m = Make()
    seen = m.windows(m.relu(m.x("x", BATCH, 9, 10)), WINDOW, WINDOW, outside=float("-inf"))
    reduction = reduction_of(m.reduced("amax", seen, 0, 1))
    assert not padded(walk_of(reduction)) and not known_inside(walk_of(reduction))
    assert "pass0(inside_1, x_1)" in cuda_text((reduction,))


def test_what_two_choices_read_is_chosen_afterwards() -> None:
    """It is two constants outside."""
    m = Make()
    x = m.x("x", BATCH, 9, 10)
    seen = m.windows(x, WINDOW, WINDOW, outside=0.5)
    wide = m.windows(m.relu(x), WINDOW, WINDOW, outside=0.25)
    kernel = walk_of(reduction_of(m.reduced("sum", m.add(seen, wide), 0, 1)))
    assert not padded(kernel)


def test_a_test_that_another_choice_reads_is_made() -> None:
    m = Make()
    seen = m.windows(m.x("x", BATCH, 9, 10), WINDOW, WINDOW, outside=0.5)
    other = m.windows(m.relu(m.x("y", BATCH, 9, 10)), WINDOW, WINDOW, outside=0.25)
    kernel = walk_of(reduction_of(m.reduced("sum", m.add(seen, other), 0, 1)))
    assert list(padded(kernel)) == ["x_1"] and not known_inside(kernel)
