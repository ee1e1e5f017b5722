"""Neutral elements, signs, and operations that do nothing the second time.

Left out on purpose: `x + 0.0 -> x` where x may be -0.0, `x * 0.0 -> 0.0` (NaN, infinities),
`-(x - y) -> y - x` (the sign of zero), `x / x -> 1`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ..ir.numpy.interpret import NUMPY_DTYPES
from ..ir.rules.pattern import Match
from ..ir.rules.rewrite import Condition, Domain, Numerics, Rule
from ..ir.types import DType
from .range import range_of
from .terms import (
    a,
    absolute,
    b,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    c,
    ceil,
    equal,
    floor,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    neg,
    not_equal,
    relu,
    round_half_even,
    sign,
    trunc,
    where,
    x,
    y,
    z,
)

EXACT, REORDER = Numerics.EXACT, Numerics.REORDER
BITS, FLOAT, NUMBER = Domain.BITS, Domain.FLOAT, Domain.NUMBER


def _never_negative_zero(match: Match) -> bool:
    return not range_of(match.node("x")).may_be_negative_zero


def _product_is_harmless(match: Match) -> bool:
    """a * b is a number of the compute type, and x * a goes out of range only if x * a * b does."""
    compute = NUMPY_DTYPES[match.root.type.dtype.compute]
    left, right = match.value("a"), match.value("b")
    if not (np.isfinite(left) and np.isfinite(right) and left and right):
        return False
    exact = Fraction(float(compute(left))) * Fraction(float(compute(right)))
    info = np.finfo(compute)
    if not float(info.tiny) <= abs(exact) <= float(info.max):
        return False
    if Fraction(float(compute(float(exact)))) != exact:
        return False
    return (abs(left) <= 1) == (abs(right) <= 1)


never_negative_zero = Condition("x is never -0.0", _never_negative_zero)
harmless_product = Condition("a * b is exact and stays on its side of 1", _product_is_harmless)
is_bool = Condition("x is bool", lambda m: m.node("x").type.dtype is DType.BOOL)
z_is_bool = Condition("z is bool", lambda m: m.node("z").type.dtype is DType.BOOL)

NEUTRAL = (
    Rule("mul-one", x * 1.0, x, EXACT, domain=NUMBER),
    Rule("div-one", x / 1.0, x, EXACT, domain=FLOAT),
    Rule("sub-zero", x - 0.0, x, EXACT, domain=NUMBER),
    Rule("add-negative-zero", x + -0.0, x, EXACT, domain=FLOAT),
    Rule("add-zero", x + 0.0, x, EXACT, never_negative_zero, domain=NUMBER),
)

SIGNS = (
    Rule("neg-neg", neg(neg(x)), x, EXACT, domain=NUMBER),
    Rule("mul-minus-one", x * -1.0, -x, EXACT, domain=FLOAT),
    Rule("div-minus-one", x / -1.0, -x, EXACT, domain=FLOAT),
    Rule("neg-mul-const", -(x * c), x * -c, EXACT, domain=FLOAT),
    Rule("mul-neg-const", -x * c, x * -c, EXACT, domain=FLOAT),
    Rule("mul-negs", -x * -y, x * y, EXACT, domain=NUMBER),
    Rule("div-negs", -x / -y, x / y, EXACT, domain=FLOAT),
    Rule("add-neg", x + -y, x - y, EXACT, domain=NUMBER),
    Rule("sub-neg", x - -y, x + y, EXACT, domain=NUMBER),
    Rule("abs-neg", absolute(-x), absolute(x), EXACT, domain=FLOAT),
)

REPEATED = (
    Rule("abs-abs", absolute(absolute(x)), absolute(x), EXACT, domain=NUMBER),
    Rule("relu-relu", relu(relu(x)), relu(x), EXACT, domain=NUMBER),
    Rule("sign-sign", sign(sign(x)), sign(x), EXACT, domain=NUMBER),
    Rule("floor-floor", floor(floor(x)), floor(x), EXACT, domain=FLOAT),
    Rule("ceil-ceil", ceil(ceil(x)), ceil(x), EXACT, domain=FLOAT),
    Rule("trunc-trunc", trunc(trunc(x)), trunc(x), EXACT, domain=FLOAT),
    Rule(
        "round-round",
        round_half_even(round_half_even(x)),
        round_half_even(x),
        EXACT,
        domain=FLOAT,
    ),
)

SAME_OPERANDS = (
    Rule("add-self", x + x, x * 2.0, EXACT, domain=FLOAT),
    Rule("maximum-self", maximum(x, x), x, EXACT, domain=NUMBER),
    Rule("minimum-self", minimum(x, x), x, EXACT, domain=NUMBER),
    Rule("where-same", where(z, x, x), x, EXACT),
    Rule("bitwise-and-self", bitwise_and(x, x), x, EXACT, domain=BITS),
    Rule("bitwise-or-self", bitwise_or(x, x), x, EXACT, domain=BITS),
    Rule("logical-and-self", logical_and(x, x), x, EXACT, is_bool),
    Rule("logical-or-self", logical_or(x, x), x, EXACT, is_bool),
)

LOGIC = (
    Rule("not-not", logical_not(logical_not(x)), x, EXACT, is_bool),
    Rule("bitwise-not-not", bitwise_not(bitwise_not(x)), x, EXACT, domain=BITS),
    Rule("not-equal", logical_not(equal(x, y)), not_equal(x, y), EXACT),
    Rule("not-not-equal", logical_not(not_equal(x, y)), equal(x, y), EXACT),
    Rule("where-not", where(logical_not(z), x, y), where(z, y, x), EXACT, z_is_bool),
)

CONSTANTS = (
    # One rounding fewer; the product of the constants is exact, so the result is no less accurate.
    Rule("mul-mul-const", (x * a) * b, x * (a * b), REORDER, harmless_product, domain=FLOAT),
)

ALGEBRA: tuple[Rule, ...] = (*NEUTRAL, *SIGNS, *REPEATED, *SAME_OPERANDS, *LOGIC, *CONSTANTS)
