"""Which groups compute products again for their gradients."""

from __future__ import annotations

import pytest

from opweld.driver.budget import Choice, within
from opweld.errors import UserError
from opweld.options import Options

CHEAP, DEAR, NOTHING = Choice(60, 1.0), Choice(40, 10.0), Choice(0, 1.0)


@pytest.mark.parametrize(
    ("budget", "again"),
    [
        (1.0, [False, False, False]),
        (0.99, [False, False, True]),
        (0.4, [False, False, True]),
        (0.39, [True, False, True]),
        (0.0, [True, False, True]),
    ],
)
def test_what_is_quick_for_its_bytes_goes_first(budget: float, again: list[bool]) -> None:
    assert within(budget, [DEAR, NOTHING, CHEAP]) == again


def test_nothing_is_kept_of_nothing() -> None:
    assert within(0.0, []) == [] and within(0.0, [NOTHING]) == [False]


@pytest.mark.parametrize("budget", [-0.1, 1.1, float("nan")])
def test_a_budget_is_a_share(budget: float) -> None:
    with pytest.raises(UserError, match="--memory-budget must be from 0 to 1"):
        Options(training=True, memory_budget=budget)


def test_a_budget_is_of_training() -> None:
    with pytest.raises(UserError, match="add --training"):
        Options(memory_budget=0.5)
    assert Options(training=True, memory_budget=0.5).memory_budget == 0.5
