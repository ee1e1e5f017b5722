"""All rules, in the order in which they are tried on a node.

RULES make a graph simple. Those of `linear_rules` change what is computed, and ask who reads what;
they are tried on a graph that is simple.
"""

from __future__ import annotations

from ..ir.rules.algebra import Algebra
from ..ir.rules.rewrite import Rule
from .algebra import ALGEBRA
from .casts import CASTS
from .clamps import CLAMPS
from .comparisons import COMPARISONS
from .decompose import DECOMPOSE
from .folding import FOLDING
from .products.condense import CONDENSE, CONDENSE_FINITE
from .products.pooled_rows import POOLED_ROWS, POOLED_ROWS_FINITE
from .sizes import SIZES
from .views import VIEWS

RULES: tuple[Rule, ...] = (
    *FOLDING,
    *CASTS,
    *ALGEBRA,
    *DECOMPOSE,
    *CLAMPS,
    *COMPARISONS,
    *VIEWS,
    *SIZES,
)

LINEAR: tuple[Rule, ...] = (*CONDENSE, *POOLED_ROWS)
LINEAR_FINITE: tuple[Rule, ...] = (*CONDENSE_FINITE, *POOLED_ROWS_FINITE)
"""The same rules where all inputs are assumed to be finite."""


def linear_rules(algebra: Algebra) -> tuple[Rule, ...]:
    """The rules that change what is computed, as far as NaN and infinities are of no matter."""
    return {Algebra.OFF: (), Algebra.EXACT: LINEAR, Algebra.FINITE: LINEAR_FINITE}[algebra]
