"""Where a reduction's group evaluates each value, and after how many walks over a row it is known.

Every value is evaluated where its reader needs it: for an element of a row, or once for the row. A
reduction is known after a walk over its row, so it may be read at the coordinates of its own row
alone. A scan is known at an element once the walk has come there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..expr import Size, symbols_of
from ..graph import Node
from ..index import (
    Coords,
    align,
    cat_pieces,
    row_coords,
    space_bounds,
    space_coords,
    through_view,
    within_padding,
)
from ..ops import Kind, Op

Place = tuple[Node, Coords]


class NotOfRow(Exception):
    """A value is needed where the walks over one row do not give it."""


@dataclass(slots=True)
class Levels:
    """The levels of the nodes `inside`, by serial: the number of walks that must come before.

    `completed` are the reductions met so far, each with the number of walks after which it is
    known. Values may be needed at `most` places.
    """

    inside: frozenset[int]
    space: tuple[Size, ...]
    axes: tuple[int, ...]
    most: int | None = None
    completed: dict[Node, int] = field(default_factory=dict)
    _known: dict[tuple[int, Coords], int] = field(default_factory=dict)

    def of(self, node: Node, coords: Coords) -> int:
        """Raises NotOfRow where a reduction is read elsewhere than at its row, or too much is."""
        node, coords = self.behind_views(node, coords)
        if node.serial not in self.inside:
            return 0
        key = (node.serial, coords)
        if key not in self._known:
            if self.most is not None and len(self._known) >= self.most:
                raise NotOfRow
            self._known[key] = self._level(node, coords)
        return self._known[key]

    def _level(self, node: Node, coords: Coords) -> int:
        if node.kind is Kind.REDUCTION:
            return self._reduced(node, coords)
        if node.kind is Kind.SCAN:
            return self._scanned(node, coords)
        levels = (self.of(operand, moved) for operand, moved in _operands(node, coords))
        return max(levels, default=0)

    def _reduced(self, node: Node, coords: Coords) -> int:
        operand = node.inputs[0]
        same = operand.type.shape == self.space and node.attrs.axes == self.axes
        if not same or coords != row_coords(self.space, self.axes):
            raise NotOfRow
        self.completed[node] = self.of(operand, space_coords(self.space, self.axes)) + 1
        return self.completed[node]

    def _scanned(self, node: Node, coords: Coords) -> int:
        everywhere = space_coords(self.space, self.axes)
        same = node.type.shape == self.space and (node.attrs.axis,) == self.axes
        if not same or coords != everywhere or self.of(node.inputs[0], everywhere) > 0:
            raise NotOfRow
        self.completed[node] = 1
        return 1

    def behind_views(self, node: Node, coords: Coords) -> Place:
        """What a view shows there, where each of its elements is one of its only operand's."""
        bounds = space_bounds(self.space, self.axes)
        while node.kind is Kind.VIEW and node.op not in _UNDER_CONDITIONS:
            coords = through_view(node, coords, bounds)
            node = node.inputs[0]
        return node, coords

    def of_rows(self, needed: Iterable[Place]) -> list[Place]:
        """What is computed once for the row, and needed at the places: not the reductions
        themselves, nor what needs none.
        """
        found: dict[tuple[int, Coords], Place] = {}
        seen: set[tuple[int, Coords]] = set()
        waiting = list(needed)[::-1]
        while waiting:
            node, coords = self.behind_views(*waiting.pop())
            key = (node.serial, coords)
            if key in seen or self.of(node, coords) == 0 or node.kind is Kind.REDUCTION:
                continue
            seen.add(key)
            if is_of_row(coords):
                found[key] = (node, coords)
            else:
                waiting += _operands(node, coords)[::-1]
        return list(found.values())


def is_of_row(coords: Coords) -> bool:
    """Whether coordinates are the same for all elements of a row."""
    return not any(name.startswith("r") for c in coords for name in symbols_of(c))


_UNDER_CONDITIONS = frozenset((Op.CAT, Op.PAD))


def _operands(node: Node, coords: Coords) -> list[Place]:
    """What a pointwise operation, a CAT or a PAD reads, and where."""
    if node.op is Op.PAD:
        return [(node.inputs[0], within_padding(node, coords))]
    if node.op is Op.CAT:
        return [(operand, moved) for operand, _, moved in cat_pieces(node, coords)]
    return [(operand, align(coords, operand.type.shape)) for operand in node.inputs]
