"""The grade of one floating-point output: a pure function of error figures.

Errors are absolute, against a float64 run of the original on the same rounded inputs. The rule is
the project's own (see the numerics chapter of the documentation): **A** when the root mean square
is within 5 % of eager's and the largest error within 1.5 times eager's, each plus half an ulp (the
margins are for chance: torch against itself on permuted rows is "worse" half of the time); **B**
when both are within twice eager's (three times for 16-bit types), each plus half an ulp; **C** when
only `torch.testing.assert_close`'s defaults hold; **F** otherwise. Where few independent errors
were seen, the margins of B are those of chance (`statistics.py`) if these are wider.

Half an ulp is what correct rounding alone may cost: for the root mean square it is that of every
element's half ulp, and the largest error is taken after each element's own half ulp is subtracted.

Eager may be right by chance: where one element is far larger than the others its rounding is both
figures, and now and then that is next to nothing. So eager's figures are taken to be those of
correct rounding where they are smaller, as far as chance explains the difference: hardly where many
elements are large, and never where eager has results that need no rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from opweld.judge.numerics.statistics import margins, rounding_margin
from opweld.judge.values import GRADES, Grade

RMS_MARGIN_A, MAX_MARGIN_A = 1.05, 1.5
MARGIN_B, MARGIN_B_16BIT = 2.0, 3.0
# Below this many elements a band's root mean square says nothing.
MIN_BAND_COUNT = 32
BAND_RATIO = 10.0


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format: significand bits and the exponent of its least normal."""

    precision: int
    min_exponent: int
    bits: int

    @property
    def eps(self) -> float:
        return 2.0 ** (1 - self.precision)


@dataclass(frozen=True, slots=True)
class Band:
    """Errors of the elements whose magnitude lies in one range of binades."""

    count: int
    rms_value: float
    rms_error: float
    eager_rms_error: float


@dataclass(frozen=True, slots=True)
class Rounding:
    """What rounding eager's results correctly costs, those left out that it has without an error:
    the expected root mean square over all elements, the largest error there can be, and the
    degrees of freedom of these errors by the elements' ulps.
    """

    rms: float
    max: float
    freedom: float


NO_ROUNDING = Rounding(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Figures:
    """All that the grade of one output depends on.

    `excess` is the largest |error| left after half an ulp of the element is subtracted,
    `half_ulp_rms` the root mean square of the elements' half ulps, `num_special_wrong` the number
    of elements whose NaN or infinity is neither eager's nor the float64 run's, `close` whether
    assert_close's defaults hold against eager, `scale` the root mean square of the values,
    `freedom` how many of the errors are independent (None: all), `rounding` what correct rounding
    costs where eager rounds.
    """

    format: Format
    count: int
    rms: float
    max: float
    excess: float
    eager_rms: float
    eager_max: float
    half_ulp_rms: float
    close: bool
    num_special_wrong: int = 0
    bands: tuple[Band, ...] = ()
    scale: float = 0.0
    freedom: float | None = None
    rounding: Rounding = NO_ROUNDING


def grade(figures: Figures) -> Grade:
    """The grade of one output."""
    if figures.num_special_wrong:
        return "F"
    if figures.count == 0:
        return "A"
    if any(loses_digits(figures.format, band, figures.scale) for band in figures.bands):
        return "F"
    margin = MARGIN_B_16BIT if figures.format.bits == 16 else MARGIN_B
    if _within(figures, RMS_MARGIN_A, MAX_MARGIN_A):
        return "A"
    chance = margins(figures.count if figures.freedom is None else figures.freedom)
    if _within(figures, max(margin, chance.rms), max(margin, chance.max)):
        return "B"
    return "C" if figures.close else "F"


def without_allowance(figures: Figures) -> Figures:
    """The same figures, of which nothing is put down to chance."""
    return replace(figures, freedom=math.inf, rounding=NO_ROUNDING)


def loses_digits(format: Format, band: Band, scale: float = 0.0) -> bool:
    """Whether small elements are wrong while the big ones set root mean square and maximum.

    A band fails when half of its digits are lost (error above sqrt(eps) of its values) although
    eager keeps them (an error ten times smaller). Cancellation hits both sides alike, so it passes:
    in 16 bits too, where eager rounds what cancels to a coarse grid, often to equal numbers, and is
    right by chance; an error below eps^2 of the output's `scale` is no loss there.
    """
    if band.count < MIN_BAND_COUNT:
        return False
    if format.bits == 16 and band.rms_error < format.eps**2 * scale:
        return False
    lost = band.rms_error > math.sqrt(format.eps) * band.rms_value
    return lost and band.rms_error > BAND_RATIO * band.eager_rms_error


def worst(grades: Iterable[Grade]) -> Grade:
    """The lowest of some grades; A where there is none."""
    return max(grades, key=GRADES.index, default="A")


def _within(figures: Figures, rms_margin: float, max_margin: float) -> bool:
    eager_rms, eager_max = _eager_errors(figures)
    rms_limit = rms_margin * eager_rms + figures.half_ulp_rms
    return figures.rms <= rms_limit and figures.excess <= max_margin * eager_max


def _eager_errors(figures: Figures) -> tuple[float, float]:
    """Eager's root mean square and largest error; those of correct rounding where these are larger
    and by no more than chance makes them.
    """
    rounding = figures.rounding
    factor = rounding_margin(rounding.freedom)
    rms = min(rounding.rms, factor * figures.eager_rms)
    largest = min(rounding.max, factor * figures.eager_max)
    return max(figures.eager_rms, rms), max(figures.eager_max, largest)
