"""Powers as products and roots, division as multiplication.

PyTorch itself computes the exponents 2, 3, 1/2, -1/2 and -1 of a scalar as these rules do, so they
are exact. Larger powers cost a rounding each: for float32 and float64 four is the last that keeps
the error within twice that of pow (root mean square of three roundings, 1.7 times); 16-bit floats
calculate in float32, where seven more roundings do not matter, and integers have none.
"""

from __future__ import annotations

import math

from ..ir.rules.pattern import Match, Pattern
from ..ir.rules.rewrite import Condition, Domain, Numerics, Rule
from .terms import c, reciprocal, rsqrt, sqrt, x

EXACT, REORDER = Numerics.EXACT, Numerics.REORDER
FLOAT, HALF, INTEGER, NUMBER = Domain.FLOAT, Domain.HALF, Domain.INTEGER, Domain.NUMBER

_LARGEST_EXPONENT = 126
"""Powers of two up to this have normal float32 reciprocals."""


def _is_power_of_two(match: Match) -> bool:
    value = match.value("c")
    if not math.isfinite(value) or value == 0:
        return False
    significand, exponent = math.frexp(abs(value))
    return significand == 0.5 and abs(exponent - 1) <= _LARGEST_EXPONENT


def _power(exponent: int) -> Pattern:
    """The product by repeated squaring; equal factors are one node."""
    if exponent == 1:
        return x
    half = _power(exponent // 2)
    return half * half if exponent % 2 == 0 else half * half * x


power_of_two = Condition("c is a power of two", _is_power_of_two)

SMALL_POWERS = (
    Rule("pow-one", x**1.0, x, EXACT, domain=NUMBER),
    Rule("pow-two", x**2.0, x * x, EXACT, domain=NUMBER),
    Rule("pow-three", x**3.0, x * x * x, EXACT, domain=NUMBER),
    Rule("pow-half", x**0.5, sqrt(x), EXACT, domain=FLOAT),
    Rule("pow-minus-half", x**-0.5, rsqrt(x), EXACT, domain=FLOAT),
    Rule("pow-minus-one", x**-1.0, reciprocal(x), EXACT, domain=FLOAT),
    # Not 1 / (x * x), whose derivative overflows where this one's does not.
    Rule("pow-minus-two", x**-2.0, reciprocal(x) * reciprocal(x), REORDER, domain=FLOAT),
    Rule("pow-four", x**4.0, x * x * x * x, REORDER, domain=FLOAT),
)
LARGE_POWERS = tuple(
    rule
    for n in range(4, 9)
    for rule in (
        Rule(f"pow-{n}-half", x ** float(n), _power(n), REORDER, domain=HALF),
        Rule(f"pow-{n}-integer", x**n, _power(n), EXACT, domain=INTEGER),
    )
)
DIVISION = (Rule("div-power-of-two", x / c, x * (1.0 / c), EXACT, power_of_two, domain=FLOAT),)

DECOMPOSE: tuple[Rule, ...] = (*LARGE_POWERS, *SMALL_POWERS, *DIVISION)
