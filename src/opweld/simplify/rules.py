"""All rules, in the order in which they are tried on a node.

RULES make a graph simple. Those of `phases` change what is computed, and ask who reads what;
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
from .products.convolved.folded import FOLDED, FOLDED_FINITE
from .products.convolved.mean import AVERAGED, AVERAGED_FINITE
from .products.convolved.merged import MERGED, MERGED_FINITE
from .products.convolved.pooled import POOLED, POOLED_FINITE
from .products.convolved.poolings import POOLINGS
from .products.order.rule import ORDER, ORDER_FINITE
from .products.pooled_rows import POOLED_ROWS, POOLED_ROWS_FINITE
from .products.structure.diagonal import DIAGONALS, DIAGONALS_FINITE
from .products.structure.triangular import TRIANGLES, TRIANGLES_FINITE
from .repeated import REPEATED
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

Phases = tuple[tuple[Rule, ...], ...]

_SHRINKING = (
    *REPEATED,
    *CONDENSE,
    *POOLED_ROWS,
    *AVERAGED,
    *POOLINGS,
    *POOLED,
    *DIAGONALS,
)
_SHRINKING_FINITE = (
    *REPEATED,
    *CONDENSE_FINITE,
    *POOLED_ROWS_FINITE,
    *AVERAGED_FINITE,
    *POOLINGS,
    *POOLED_FINITE,
    *DIAGONALS_FINITE,
)
PHASES: Phases = (_SHRINKING, (*ORDER, *MERGED), TRIANGLES, FOLDED)
PHASES_FINITE: Phases = (
    _SHRINKING_FINITE,
    (*ORDER_FINITE, *MERGED_FINITE),
    TRIANGLES_FINITE,
    FOLDED_FINITE,
)
"""The same rules where all inputs are assumed to be finite.

Rules of a phase are tried where none of an earlier one fits. First those that leave less to
compute: the others choose between forms by sizes, which have to be those that are left.
(Of a convolution of one tap behind another, averaged over space, both would be one first, by a
product of their weights; averages first, there is no convolution to be merged.) A chain of
products takes its best order at once. Then what makes several calls of one, and last what leaves
the calls as they are.
"""

LINEAR: tuple[Rule, ...] = tuple(rule for phase in PHASES for rule in phase)
LINEAR_FINITE: tuple[Rule, ...] = tuple(rule for phase in PHASES_FINITE for rule in phase)


def phases(algebra: Algebra) -> Phases:
    """The rules that change what is computed, as far as NaN and infinities are of no matter."""
    return {Algebra.OFF: (), Algebra.EXACT: PHASES, Algebra.FINITE: PHASES_FINITE}[algebra]
