"""Which rows of a large result are held to the float64 run, where not all of them are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

_LEAST_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """The first block of rows and drawn ones, of `max_elems` elements together; of the others those
    that `are_close(rows)` does not find close to eager's.
    """

    max_elems: int
    random: Random
    are_close: Callable[[slice], bool]

    def needed(self, blocks: Sequence[slice], num_elems: int) -> Iterator[slice]:
        """Those of the blocks, in order; `num_elems` counts the elements of all."""
        fitting = self.max_elems * len(blocks) // max(num_elems, 1)
        count = min(len(blocks), max(_LEAST_BLOCKS, fitting))
        drawn = {0, *self.random.sample(range(1, len(blocks)), count - 1)} if blocks else set()
        for number, rows in enumerate(blocks):
            if number in drawn or not self.are_close(rows):
                yield rows
