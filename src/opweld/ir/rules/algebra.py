"""How far the mathematics of a graph may be changed."""

from __future__ import annotations

import enum


class Algebra(enum.Enum):
    """EXACT: where the result is the same for any inputs, NaN and infinities included. FINITE:
    where it is for inputs and weights that are finite. OFF: not at all.
    """

    EXACT = "exact"
    FINITE = "finite"
    OFF = "off"
