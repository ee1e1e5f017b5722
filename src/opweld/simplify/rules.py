"""All rules, in the order in which they are tried on a node."""

from __future__ import annotations

from ..ir.rules.rewrite import Rule
from .algebra import ALGEBRA
from .casts import CASTS
from .clamps import CLAMPS
from .comparisons import COMPARISONS
from .decompose import DECOMPOSE
from .folding import FOLDING
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
