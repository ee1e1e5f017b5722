"""What the conditions of several rules ask for, and what is said where one does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...ir.graph import Node
from ...ir.rules.pattern import Match
from ...ir.rules.rewrite import Missed
from ...ir.types import DType
from ..range import range_of

IN_CALLS = (DType.F32, DType.F64)
"""Types whose products rules make as calls: one of 16 bits would be rounded between."""
LEAST_GAIN = 1.25
"""How many times longer than its replacement the original has to take."""
_LARGEST = 2.0**20

Found = TypeVar("Found")


def unbounded(nodes: Iterable[Node]) -> list[Node]:
    """Those that may be infinite, or so large that products of them overflow."""
    return [node for node in nodes if not range_of(node).is_within(_LARGEST)]


@dataclass(frozen=True, slots=True)
class Checked(Generic[Found]):
    """A condition that says what it misses: `find` what the rule is about, `why_not` the part that
    does not hold, None where all do, and `text` what is found, as mathematics.
    """

    find: Callable[[Match], Found | None]
    why_not: Callable[[Match, Found], str | None]
    text: Callable[[Found], str]

    def holds(self, match: Match) -> bool:
        found = self.find(match)
        return found is not None and self.why_not(match, found) is None

    def missed(self, match: Match) -> Missed | None:
        found = self.find(match)
        reason = None if found is None else self.why_not(match, found)
        if found is None or reason is None:
            return None
        return Missed(self.text(found), reason)
