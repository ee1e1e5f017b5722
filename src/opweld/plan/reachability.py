"""Which units of a graph lead to which others, while units are merged one by one.

A unit is a set of nodes that runs as one: reaching one of its nodes reaches all that they lead to.
Sets of nodes are bit masks by place, so that a question costs a few operations on integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .uses import Uses


@dataclass(slots=True)
class Reach:
    """At the place of each unit's head: its members, what leads to it, and what it leads to."""

    head: list[int]
    heads: int
    members: list[int]
    before: list[int]
    after: list[int]

    def returns(self, left: int, right: int) -> bool:
        """Whether a path leaves the units of two nodes and comes back into one of them."""
        a, b = self.head[left], self.head[right]
        between = self.after[a] & self.before[b] | self.after[b] & self.before[a]
        return bool(between & ~(self.members[a] | self.members[b]))

    def leads_to(self, first: int, second: int) -> bool:
        """Whether a path goes from the unit of the first node to the second."""
        return bool(self.after[self.head[first]] >> second & 1)

    def merge(self, left: int, right: int) -> None:
        """Makes one unit of the units of two nodes."""
        a, b = self.head[left], self.head[right]
        if a == b:
            return
        self._tell(self.before[a] & ~self.before[b], self.after, self.members[b] | self.after[b])
        self._tell(self.before[b] & ~self.before[a], self.after, self.members[a] | self.after[a])
        self._tell(self.after[a] & ~self.after[b], self.before, self.members[b] | self.before[b])
        self._tell(self.after[b] & ~self.after[a], self.before, self.members[a] | self.before[a])
        members = self.members[a] | self.members[b]
        for place in _places(self.members[b]):
            self.head[place] = a
        self.heads &= ~(1 << b)
        self.members[a] = members
        self.before[a] = (self.before[a] | self.before[b]) & ~members
        self.after[a] = (self.after[a] | self.after[b]) & ~members

    def _tell(self, units: int, known: list[int], more: int) -> None:
        for place in _places(units & self.heads):
            known[place] |= more


def _places(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def reach_of(uses: Uses) -> Reach:
    """Every node a unit of its own. Free views are no nodes on a path: they are read in place."""
    count = len(uses.nodes)
    before, after = [0] * count, [0] * count
    following = {first.serial: later for later, first in uses.drawn_before.items()}
    next_places = [
        [uses.place[reader.serial] for reader in uses.readers[node.serial]]
        + [uses.place[s] for s in (following.get(node.serial),) if s is not None]
        for node in uses.nodes
    ]
    for at, places in enumerate(next_places):
        for place in places:
            before[place] |= before[at] | 1 << at
    for at in reversed(range(count)):
        for place in next_places[at]:
            after[at] |= after[place] | 1 << place
    return Reach(
        list(range(count)), (1 << count) - 1, [1 << p for p in range(count)], before, after
    )
