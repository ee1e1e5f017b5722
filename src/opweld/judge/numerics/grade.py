"""The grade of one floating-point output: a pure function of error figures.

Errors are absolute, against a float64 run of the original on the same rounded inputs. The rule is
the project's own (see the numerics chapter of the documentation): **A** when the root mean square
is within 5 % of eager's and the largest error within 1.5 times eager's, each plus half an ulp (the
margins are for chance: torch against itself on permuted rows is "worse" half of the time); **B**
when both are within twice eager's (three times for 16-bit types), each plus half an ulp; **C** when
only `torch.testing.assert_close`'s defaults hold; **F** otherwise. Where few independent errors
were seen, the margins of B are those of chance (`chance.py`) if these are wider.

Half an ulp is what correct rounding alone may cost: for the root mean square it is that of every
element's half ulp, and the largest error is taken after each element's own half ulp is subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from opweld.judge.numerics.statistics import margins
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
class Figures:
    """All that the grade of one output depends on.

    `excess` is the largest |error| left after half an ulp of the element is subtracted,
    `half_ulp_rms` the root mean square of the elements' half ulps, `num_special_wrong` the number
    of elements whose NaN or infinity is neither eager's nor the float64 run's, `close` whether
    assert_close's defaults hold against eager, `scale` the root mean square of the values,
    `freedom` how many of the errors are independent (None: all).
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
    rms_limit = rms_margin * figures.eager_rms + figures.half_ulp_rms
    return figures.rms <= rms_limit and figures.excess <= max_margin * figures.eager_max
