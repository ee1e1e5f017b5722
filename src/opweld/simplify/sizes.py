"""Reductions and windows of one element, and what becomes of a value less itself.

`x - x` is 0 where x is finite and NaN elsewhere: it goes only where x is known to be finite, and
what a softmax of one element makes of it keeps its NaN.

Left out: max(f(x)) -> f(max(x)) for other functions than relu. Elements that the rounding of f
makes equal share the gradient of the largest, and so do those that a clamp makes equal to a bound.
"""

from __future__ import annotations

from ..ir.attrs import SliceAttrs
from ..ir.ops import Op
from ..ir.rules.pattern import Computed, Match, Number, Pattern, call
from ..ir.rules.rewrite import Condition, Domain, Numerics, Rule
from .clamps import finite
from .terms import amax, amin, exp, is_inf, log, relu, reshape, slice_axis, where, window, x
from .views import root_shape

EXACT, VALUE = Numerics.EXACT, Numerics.VALUE
FLOAT, NUMBER = Domain.FLOAT, Domain.NUMBER


def _has_one_element(match: Match) -> bool:
    shape = match.node("x").type.shape
    return all(shape[axis] == 1 for axis in match.attrs("p").axes)


def _is_one_wide(match: Match) -> bool:
    return bool(match.attrs("p").width == 1)


def _first_elements(match: Match) -> SliceAttrs:
    attrs = match.attrs("p")
    return SliceAttrs(attrs.dim, 0, attrs.step, attrs.count)


one_element = Condition("the axes of p have size 1", _has_one_element)
one_wide = Condition("its windows have one element", _is_one_wide)
first_elements = Computed("where they start", _first_elements)


def _of_one(name: str, op: Op, numerics: Numerics = EXACT, domain: Domain = Domain.ANY) -> Rule:
    return Rule(f"{name}-one", call(op)(x, attrs="p"), x, numerics, one_element, domain)


OF_ONE_ELEMENT = (
    # Some libraries begin at 0.0, and 0.0 + -0.0 is 0.0.
    _of_one("sum", Op.SUM, VALUE, NUMBER),
    _of_one("prod", Op.PROD, domain=NUMBER),
    _of_one("mean", Op.MEAN, VALUE, FLOAT),
    _of_one("amax", Op.AMAX),
    _of_one("amin", Op.AMIN),
    _of_one("any", Op.ANY),
    _of_one("all", Op.ALL),
    Rule(
        "window-one",
        window(x, attrs="p"),
        reshape(slice_axis(x, attrs=first_elements), attrs=root_shape),
        EXACT,
        one_wide,
    ),
)

_nothing = x - x
_one: Pattern = _nothing + 1.0
_shift = where(is_inf(x), 0.0, x)
LESS_ITSELF = (
    Rule("sub-self", _nothing, Number(0.0), EXACT, finite, FLOAT),
    Rule("exp-sub-self", exp(_nothing), _one, EXACT, domain=FLOAT),
    Rule("softmax-one", _one / _one, _one, EXACT, domain=FLOAT),
    Rule("log-softmax-one", log(_one), _nothing, EXACT, domain=FLOAT),
    Rule("sub-self-self", _nothing - _nothing, _nothing, EXACT, domain=FLOAT),
    Rule("logsumexp-one", log(exp(x - _shift)) + _shift, x, VALUE, domain=FLOAT),
)

MONOTONE = (
    Rule("amax-relu", amax(relu(x), attrs="p"), relu(amax(x, attrs="p")), VALUE, domain=FLOAT),
    Rule("amin-relu", amin(relu(x), attrs="p"), relu(amin(x, attrs="p")), VALUE, domain=FLOAT),
)

SIZES: tuple[Rule, ...] = (*OF_ONE_ELEMENT, *LESS_ITSELF, *MONOTONE)
