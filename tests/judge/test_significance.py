"""Who is slower, by pairs: nobody by chance, the slower one nearly always.

All times are drawn from a seeded generator; none are taken.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from opweld.judge.measure.significance import (
    LEAST_PAIRS,
    LEVEL,
    MARGIN,
    NUM_SETS,
    compare,
    describe,
    is_to_be_repeated,
    least_against,
    num_outside,
    tail,
    verdict,
)
from opweld.judge.values import Comparison

NUM_SEEDS = 1000
NUM_PAIRS = 50

# What the machine does to each of the two moments of a round.
Machine = Callable[[random.Random, int], tuple[float, float]]


def load_and_drift(draw: random.Random, turn: int) -> tuple[float, float]:
    """It slows down threefold over time; a third of the moments take up to thirty times as long,
    and the second moment of a round is the slower one."""

    def moment() -> float:
        busy = draw.uniform(1, 30) if draw.random() < 0.33 else 1.0
        return (1 + turn / 25) * busy * draw.lognormvariate(0, 0.3)

    return moment(), 1.2 * moment()


def some_noise(draw: random.Random, turn: int) -> tuple[float, float]:
    """A shared level that wanders, five percent of noise, and one moment in ten far too long."""
    level = 1 + 0.5 * math.sin(turn / 5)

    def moment() -> float:
        return level * draw.lognormvariate(0, 0.05) * (4.0 if draw.random() < 0.1 else 1.0)

    return moment(), moment()


def pairs(
    seed: int, machine: Machine, ratio: float = 1.0, count: int = NUM_PAIRS
) -> Iterator[tuple[float, float]]:
    """Times of ModelNew and eager; a coin says who has the first moment of a round."""
    draw = random.Random(seed)
    for turn in range(count):
        first, second = machine(draw, turn)
        new, eager = (first, second) if draw.random() < 0.5 else (second, first)
        yield ratio * new, eager


def found(times: Iterator[tuple[float, float]] | list[tuple[float, float]]) -> Comparison:
    comparison = compare(times)
    assert comparison is not None
    return comparison


def num_slower(machine: Machine, ratio: float = 1.0, count: int = NUM_PAIRS) -> int:
    return sum(found(pairs(seed, machine, ratio, count)).slower for seed in range(NUM_SEEDS))


def most_by_chance(rate: float, sure: float = 1e-4) -> int:
    """More than this of `NUM_SEEDS` events at `rate` happen with a probability below `sure`."""
    left = 1.0
    for number in range(NUM_SEEDS):
        left -= math.comb(NUM_SEEDS, number) * rate**number * (1 - rate) ** (NUM_SEEDS - number)
        if left < sure:
            return number
    raise AssertionError("no such number")


@pytest.mark.parametrize("ratio", [1.0, MARGIN])
@pytest.mark.parametrize("machine", [load_and_drift, some_noise])
@pytest.mark.parametrize("count", [LEAST_PAIRS, 20, NUM_PAIRS])
def test_the_equally_fast_is_slower_as_rarely_as_the_level_says(
    machine: Machine, ratio: float, count: int
) -> None:
    """At the margin itself, too, where it is not slower yet."""
    assert num_slower(machine, ratio, count) <= most_by_chance(LEVEL)


def test_the_bound_on_chance_is_one_that_twice_the_level_exceeds() -> None:
    assert most_by_chance(LEVEL) < 2.5 * LEVEL * NUM_SEEDS


def test_ten_percent_slower_is_found_under_realistic_noise() -> None:
    assert num_slower(some_noise, 1.1) > 0.95 * NUM_SEEDS


def test_twice_as_slow_is_found_on_a_loaded_machine() -> None:
    assert num_slower(load_and_drift, 2.0) > 0.7 * NUM_SEEDS


def test_the_interval_holds_the_ratio_as_often_as_it_says() -> None:
    missed = 0
    for seed in range(NUM_SEEDS):
        each = found(pairs(seed, load_and_drift, 1.5))
        missed += not each.low <= 1.5 <= each.high
    assert missed <= most_by_chance(2 * LEVEL)
    assert missed > 0, "an interval that is never wrong says nothing"


def test_it_is_slower_where_its_interval_is_beyond_the_margin() -> None:
    seen = set()
    for seed in range(300):
        for count in (5, 7, 8, 31, 50):
            each = found(pairs(seed, some_noise, 1.05, count))
            assert each.slower == (each.low > MARGIN) == (each.p < LEVEL)
            assert each.low <= each.ratio <= each.high
            seen.add(each.slower)
    assert seen == {True, False}


def test_moments_that_hit_one_side_only_do_not_make_it_slower() -> None:
    """Even twenty hundredfold ones in fifty pairs, which a mean or ranks would believe."""
    even = [(1.0 + 0.001 * (turn % 3), 1.0) for turn in range(30)]
    spiked = found([*even, *[(100.0, 1.0)] * 20])
    assert not spiked.slower and spiked.ratio < MARGIN
    assert found([*[(1.1, 1.0)] * 40, *[(1.0, 100.0)] * 10]).slower, "nor faster"


@pytest.mark.parametrize("count", range(1, LEAST_PAIRS))
def test_few_pairs_tell_nothing(count: int) -> None:
    each = found([(1000.0, 1.0)] * count)
    assert not each.slower and (each.low, each.high) == (0.0, math.inf)
    assert "too few to tell" in describe(each)


def test_as_many_as_are_needed_tell_where_they_agree() -> None:
    assert found([(1.03, 1.0)] * LEAST_PAIRS).slower
    assert not found([(1.03, 1.0)] * (LEAST_PAIRS - 1) + [(1.0, 1.0)]).slower


def test_ties_count_for_model_new() -> None:
    assert not found([(1.0, 1.0)] * 50).slower
    assert not found([(MARGIN, 1.0)] * 50).slower
    assert found([(1.0, 1.0)] * 50).p == 1.0
    half = found([(MARGIN, 1.0)] * 20 + [(1.2, 1.0)] * 20)
    assert half.p == tail(40, 20) and not half.slower


def test_times_that_no_clock_resolved_are_left_out() -> None:
    assert compare([]) is None
    assert compare([(0.0, 1.0), (1.0, 0.0)]) is None
    assert found([(0.0, 1.0), (1.2, 1.0), (1.0, 0.0)]).pairs == 1


def test_tails_are_those_of_a_fair_coin() -> None:
    """Against values of the binomial distribution for 20 tosses that tables have."""
    assert (tail(20, 0), tail(20, 21)) == (1.0, 0.0)
    assert tail(20, 15) == pytest.approx(0.0207, abs=5e-5)
    assert tail(20, 16) == pytest.approx(0.0059, abs=5e-5)
    assert [num_outside(count) for count in (6, 7, 20, 50)] == [0, 1, 5, 17]


def test_all_sets_have_to_say_slower() -> None:
    sets = [found([(ratio, 1.0)] * 50) for ratio in (1.3, 1.0, 1.2)]
    least = least_against(sets)
    assert least == replace(sets[1], sets=NUM_SETS) and not sets[1].slower
    both = least_against([sets[0], sets[2]])
    assert both is not None and both.slower and both.sets == 2
    assert least_against([sets[0], None]) is None, "what could not be repeated does not count"


def test_all_sets_have_to_say_a_little_faster() -> None:
    sets = [found([(ratio, 1.0)] * 50) for ratio in (0.8, 0.9, 1.0)]
    assert is_to_be_repeated(sets[0]) and not is_to_be_repeated(sets[2])
    assert least_against(sets) == replace(sets[2], sets=NUM_SETS), "neither of the two"
    assert least_against(sets[:2]) == replace(sets[1], sets=2) and sets[1].high < 1
    torn = least_against([sets[0], found([(1.3, 1.0)] * 50)])
    assert torn and not torn.slower and torn.high == 1.3, "one says faster, one slower"
    assert not is_to_be_repeated(found([(0.5, 1.0)] * 50)), "no favour is that large"
    assert is_to_be_repeated(found([(1.3, 1.0)] * 50))
    assert not is_to_be_repeated(found([(0.7, 1.0), (1.3, 1.0)] * 25))


def test_a_system_that_favours_one_process_for_a_while_makes_nobody_slower() -> None:
    """For one set of rounds in ten everything of ModelNew takes 1.3 times as long."""
    alone = together = 0
    for seed in range(NUM_SEEDS):
        draw = random.Random(-1 - seed)
        favours = [1.3 if draw.random() < 0.1 else 1.0 for _ in range(NUM_SETS)]
        sets = [
            found(pairs(NUM_SETS * seed + number, some_noise, ratio))
            for number, ratio in enumerate(favours)
        ]
        least = least_against(sets)
        alone += sets[0].slower
        together += least is not None and least.slower
    assert alone > 0.05 * NUM_SEEDS, "or three sets would not be needed"
    assert together <= most_by_chance(LEVEL)


def test_words_say_what_was_found() -> None:
    slower, unsure = found([(1.3, 1.0)] * 10), found([(1.3, 1.0), (0.9, 1.0)] * 5)
    assert describe(slower) == (
        "1.3 times eager's time (1.3 to 1.3 with 98 % confidence, p = 0.00098, 10 pairs)"
    )
    assert verdict(slower) == "significantly slower"
    assert verdict(unsure) == "not significantly slower"
    assert verdict(found([(1.0, 1.0)] * 10)) == "not slower"
