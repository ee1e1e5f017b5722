"""How far two honest sides may part by chance, given how many errors were seen.

Both sides make errors of one size, independent of each other. Over n independent errors (degrees of
freedom) the ratio of their root mean squares exceeds `Margins.rms` once in ten million times, and
the ratio of their largest errors `Margins.max`. A judgement makes some tens of such comparisons, so
that an honest pair fails by chance about once in 10^5 to 10^6 judgements. The numbers are for
normally distributed errors: the square root of the F distribution's quantile for (n, n), and the
quantile of the ratio of the maxima of n absolute values; the tests calculate both again.

Errors are often not independent: all elements of `x / x.norm()` share the norm's. How many degrees
of freedom a draw has is then seen from how much its mean square varies from draw to draw. One draw
does not show it, so chance is allowed for when all draws have been made.

Nor are errors of one size: that of a float is relative, so where few elements are large, few decide
both figures. How many that are follows from their ulps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PROBABILITY = 1e-7


@dataclass(frozen=True, slots=True)
class Margins:
    """How many times eager's an honest error may be, for its root mean square and its maximum."""

    rms: float
    max: float


# By the least number of degrees of freedom that each row holds for.
MARGINS: tuple[tuple[int, Margins], ...] = (
    (4096, Margins(1.09, 1.92)),
    (1024, Margins(1.18, 2.12)),
    (256, Margins(1.39, 2.46)),
    (128, Margins(1.60, 2.73)),
    (64, Margins(1.97, 3.17)),
    (32, Margins(2.70, 4.00)),
    (16, Margins(4.55, 5.99)),
    (8, Margins(11.7, 13.7)),
)


def margins(freedom: float) -> Margins:
    """The margins for so many degrees of freedom; below 8 those of 8."""
    return next((row for least, row in MARGINS if freedom >= least), MARGINS[-1][1])


def rounding_margin(freedom: float) -> float:
    """How many times as large as they are the errors of some roundings could have been: so many
    errors, uniform over an ulp, all are smaller by this factor once in ten million times.
    """
    return PROBABILITY ** (-1 / max(1.0, freedom))


def weighted(square: float, fourth: float) -> float:
    """The degrees of freedom in errors of different sizes, from the sums of the sizes' squares and
    fourth powers (Welch and Satterthwaite): their number where all are alike, 1 where one of them
    is far larger than the others.
    """
    return square * square / fourth if fourth else 0.0


def freedom(mean_squares: Sequence[float], count: int) -> float:
    """The degrees of freedom in some draws, from the mean square error of each of them.

    The mean of k squared normal numbers has the relative variance 2/k. At least one for each draw,
    at most `count`, the number of elements in all of them; draws that are all alike are one draw.
    """
    num = len(mean_squares)
    mean = sum(mean_squares) / max(1, num)
    if num < 2 or not mean:
        return count
    variance = sum((m / mean - 1) ** 2 for m in mean_squares) / (num - 1)
    return min(float(count), max(float(num), num * 2 / variance)) if variance else count / num
