"""Whether ModelNew is slower than eager: the one definition, for whatever shows it or acts on it.

What is compared is the two blocks of each round, a call of ModelNew's over one of eager's, by the
judge's own clock. Their order in a round is drawn (`rounds.py`), so drift and load hit either
alike: were the two equally fast, which of them meets the slower moment would be the toss of a coin,
whatever the noise is like and however it hangs together over time (Fisher, The Design of
Experiments, 1935, on randomisation).

So the test is the sign test: of n pairs, the number in which ModelNew takes more than `MARGIN`
times as long has, were it no slower than that, at most the binomial distribution B(n, 1/2). The
interval of the median ratio comes from the same distribution, by order statistics (both in Conover,
Practical Nonparametric Statistics, sections 3.2 and 3.4). Preferred to Wilcoxon's signed ranks and
to a bootstrap, because the ratios of a busy machine have no symmetric distribution, and a few of
them are a hundredfold: only their signs count here, and no large sample is needed for the
probability to be right. The price is power where noise is small and normal, where either would do.

ModelNew runs in a process of its own, and a busy system may favour one of two processes for some
seconds, which no order inside a round evens out (nor more rounds at once: Kalibera and Jones,
Rigorous benchmarking in reasonable time, 2013, on repeating at the level that varies). So a set of
rounds that says slower, or faster by little, is measured again: only where all `NUM_SETS` sets say
so it counts, and the largest of their probabilities is that of all (an intersection-union test).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from opweld.judge.values import Comparison

# Up to this ratio of the two times ModelNew is as fast as eager.
MARGIN = 1.02
# The probability of calling a ModelNew slower that is not. It holds for each file that is judged.
LEVEL = 0.01
NUM_SETS = 3
# A ratio below it is faster whatever process the system favours; others are measured again, too.
CLEARLY_FASTER = 2 / 3
# With fewer pairs not even all of them together are significant.
LEAST_PAIRS = math.ceil(math.log2(1 / LEVEL))


def compare(pairs: Iterable[tuple[float, float]]) -> Comparison | None:
    """ModelNew against eager, from the times of both in each round; None without any.

    A ratio of exactly `MARGIN` counts for ModelNew. Pairs that a clock could not resolve are left
    out: those with a time of 0.
    """
    ratios = sorted(new / eager for new, eager in pairs if new > 0 and eager > 0)
    if not ratios:
        return None
    count = len(ratios)
    p = tail(count, sum(ratio > MARGIN for ratio in ratios))
    outside = num_outside(count)
    return Comparison(
        ratio=statistics.median(ratios),
        low=ratios[outside - 1] if outside else 0.0,
        high=ratios[-outside] if outside else math.inf,
        p=p,
        pairs=count,
        slower=p < LEVEL,
    )


def is_to_be_repeated(found: Comparison) -> bool:
    """Whether other sets of rounds have to say so, too: slower, or a little faster."""
    return found.slower or (found.high < 1 and found.ratio > CLEARLY_FASTER)


def least_against(sets: Sequence[Comparison | None]) -> Comparison | None:
    """Of some sets the one that says slower, or faster, least surely; sets that contradict each
    other say neither.
    """
    found = [each for each in sets if each is not None]
    if not found or len(found) < len(sets):
        return None
    if all(each.slower for each in found):
        return replace(max(found, key=lambda each: each.p), sets=len(sets))
    least = max((each for each in found if not each.slower), key=lambda each: each.high)
    if least.high < 1:  # not so where another one says slower
        least = replace(least, high=max(each.high for each in found))
    return replace(least, sets=len(sets))


def tail(count: int, least: int) -> float:
    """The probability of at least `least` heads in `count` tosses of a fair coin."""
    return sum(math.comb(count, heads) for heads in range(least, count + 1)) / 2**count


def num_outside(count: int) -> int:
    """Which of `count` sorted ratios, from either end, bounds the interval of their median.

    The median is below the lower bound with a probability of less than `LEVEL`, and as much above
    the upper one. 0 where there are too few.
    """
    return next(k for k in range(count, -1, -1) if k == 0 or tail(count, count - k + 1) < LEVEL)


def describe(found: Comparison) -> str:
    """`1.3 times eager's time (1.1 to 1.5 with 98 % confidence, p = 0.002, 30 pairs)`."""
    sure = f"{100 * (1 - 2 * LEVEL):.0f} % confidence"
    interval = f"{found.low:.3g} to {found.high:.3g} with {sure}, p = {found.p:.2g}"
    if found.pairs < LEAST_PAIRS:
        interval = f"too few to tell, of {LEAST_PAIRS}"
        return f"{found.ratio:.3g} times eager's time ({found.pairs} pairs, {interval})"
    return f"{found.ratio:.3g} times eager's time ({interval}, {found.pairs} pairs)"


def verdict(found: Comparison) -> str:
    """What the comparison says in words; `slower` decides, the rest is explanation."""
    if found.slower:
        return "significantly slower"
    return "not significantly slower" if found.ratio > MARGIN else "not slower"
