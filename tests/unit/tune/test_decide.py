"""The rule for noise: what is proposed has won twice, by more than the spread."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from opweld.judge.values import Samples
from opweld.tune.decide import LEAST_RUNS, Decision, decide, wins
from opweld.tune.values import Trial


def samples(median: float, half: float = 0.01, n: int = 50) -> Samples:
    return Samples(median, median - half, median + half, n)


def decided(first: Mapping[str, Samples], second: Mapping[str, Samples] | None = None) -> Decision:
    def again(two: tuple[str, str]) -> Mapping[str, Samples]:
        assert second is not None, "nothing to time again"
        assert set(two) == set(second)
        return second

    return decide("now", first, again)


def test_the_winner_of_both_runs_is_proposed_with_the_second_figures() -> None:
    first = {"now": samples(1.0), "slow": samples(1.5), "fast": samples(0.8)}
    found = decided(first, {"fast": samples(0.9), "now": samples(1.0)})
    assert [trial.schedule for trial in found.trials] == ["fast", "now", "slow"]
    assert [(trial.schedule, trial.us) for trial in found.again] == [("fast", 900), ("now", 1000)]
    assert found.proposed and found.said == "10.0 % faster, twice beyond the spread"


def test_one_that_wins_only_once_is_not() -> None:
    first = {"now": samples(1.0), "fast": samples(0.8)}
    found = decided(first, {"fast": samples(0.995), "now": samples(1.0)})
    assert not found.proposed and found.said.endswith("within the spread of a second run")
    assert len(found.again) == 2


@pytest.mark.parametrize(
    ("fast", "now", "said"),
    [
        (samples(0.995), samples(1.0), "within the spread"),
        (samples(0.9, half=0.2), samples(1.0), "within the spread"),
        (samples(0.9), samples(1.0, half=0.2), "within the spread"),
        (samples(0.5, n=LEAST_RUNS - 1), samples(1.0), "too few runs"),
        (samples(1.1), samples(1.0), "the current choice is the fastest"),
    ],
)
def test_what_is_not_proposed(fast: Samples, now: Samples, said: str) -> None:
    found = decided({"fast": fast, "now": now})
    assert not found.proposed and not found.again and said in found.said


def test_one_alone_is_measured_and_stays() -> None:
    found = decided({"now": samples(1.0)})
    assert [trial.us for trial in found.trials] == [1000]
    assert not found.proposed and found.said == "nothing else to try"


def test_the_wider_spread_counts() -> None:
    fast, now = Trial("a", 90.0, 88.0, 92.0, 9), Trial("b", 100.0, 80.0, 99.9, 9)
    assert now.spread_us == pytest.approx(9.95) and wins(fast, now)
    assert not wins(fast, Trial("b", 100.0, 80.0, 100.0, 9))
