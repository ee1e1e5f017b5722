"""Comparisons that only NaN can decide.

They are said as such, for ptxas (CUDA 13.0) does not: what it knows to have a sign, |x|, x * x and
powers of two, it takes for greater than a negative constant, which a NaN is not.
"""

from __future__ import annotations

from ..ir.rules.rewrite import Domain, Numerics, Rule
from .clamps import above_c, at_least_c, at_most_c, below_c
from .terms import c, equal, greater, greater_equal, less, less_equal, x

EXACT, FLOAT = Numerics.EXACT, Domain.FLOAT

COMPARISONS: tuple[Rule, ...] = (
    Rule("greater-unless-nan", greater(x, c), equal(x, x), EXACT, above_c, domain=FLOAT),
    Rule("not-less-unless-nan", greater_equal(x, c), equal(x, x), EXACT, at_least_c, domain=FLOAT),
    Rule("less-unless-nan", less(x, c), equal(x, x), EXACT, below_c, domain=FLOAT),
    Rule("not-greater-unless-nan", less_equal(x, c), equal(x, x), EXACT, at_most_c, domain=FLOAT),
)
