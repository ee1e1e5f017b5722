"""Which schedule of a class is proposed: the rule that holds noise off.

A schedule is proposed where its median is below that of the current choice by more than the wider
of the two spreads, half of the range from the 10 to the 90 percent mark. The fastest of many is
fast by chance, too: so it has to win again, in a second run of these two alone, whose figures are
those of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opweld.judge.values import Samples
from opweld.tune.values import Trial

# With fewer runs there is no spread to speak of.
LEAST_RUNS = 5


@dataclass(frozen=True, slots=True)
class Decision:
    """`trials` in order of speed, the second run if there was one, and the verdict in words;
    `copy_us` is a copy of as many bytes.
    """

    trials: tuple[Trial, ...]
    again: tuple[Trial, ...]
    proposed: bool
    said: str
    copy_us: float | None = None


def wins(one: Trial, other: Trial) -> bool:
    """Whether `one` is faster by more than the spread of either, as far as so many runs tell."""
    enough = min(one.runs, other.runs) >= LEAST_RUNS
    return enough and one.us + max(one.spread_us, other.spread_us) < other.us


def decide(
    current: str,
    samples: Mapping[str, Samples],
    again: Callable[[tuple[str, str]], Mapping[str, Samples]],
) -> Decision:
    """The decision about the schedules in `samples`; `again` times two of them once more."""
    trials = tuple(sorted(map(trial_of, samples.items()), key=lambda trial: trial.us))
    best, now = trials[0], next(trial for trial in trials if trial.schedule == current)
    if best is now:
        others = "nothing else to try" if len(trials) == 1 else "the current choice is the fastest"
        return Decision(trials, (), False, others)
    if not wins(best, now):
        return Decision(trials, (), False, _within(best, now))
    second = again((best.schedule, current))
    best, now = (trial_of((name, second[name])) for name in (best.schedule, current))
    if not wins(best, now):
        return Decision(trials, (best, now), False, f"{_within(best, now)} of a second run")
    gain = 100 * (1 - best.us / now.us)
    return Decision(trials, (best, now), True, f"{gain:.1f} % faster, twice beyond the spread")


def _within(best: Trial, now: Trial) -> str:
    if min(best.runs, now.runs) < LEAST_RUNS:
        return "too few runs within the limit to tell"
    return "what is gained is within the spread"


def trial_of(named: tuple[str, Samples]) -> Trial:
    """Milliseconds of the clock as microseconds."""
    schedule, samples = named
    return Trial(schedule, 1e3 * samples.median, 1e3 * samples.p10, 1e3 * samples.p90, samples.n)
