"""Which nodes can share the walks over rows of a reduction or scan (see ir/kernels/levels.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.expr import Size
from ..ir.expr import product as product_of
from ..ir.graph import Node
from ..ir.index import is_across, result_coords, space_coords
from ..ir.kernels.levels import Levels, NotOfRow, is_of_row
from ..ir.plan import NO_CONDITIONS, Conditions, Rows, Sizes, number_at
from ..target import Target

# A row of up to so many elements is walked over by one team, however few rows there are: the walks
# of several kernels would take longer to start. Of neighbouring rows that one team has together
# those of all count where teams are so many times fewer than keep the device busy.
LONG_ROW = 32768
_FEW_TEAMS = 8
# Elements of 4 bytes that one multiprocessor keeps of several that have the row.
KEPT_EACH = 2 * LONG_ROW
# And of those that all have.
DEVICE_EACH = LONG_ROW // 2
# Elements of a row that are kept where they lie across neighbouring rows.
KEPT_ACROSS = 1024
# So many neighbouring rows are taken together where they are neighbours in memory.
ROWS_ACROSS = 128


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Which rows are too few to give every processor work, and which are too long to stay on the
    chip: `rows` and `held_elems` are what the target says, `multiprocessors` how many may have one
    row together, and `sizes` are examples of symbolic sizes. All together keep `device_elems` of 4
    bytes of one.
    """

    rows: int = 0
    multiprocessors: int = 1
    sizes: Sizes = ()
    held_elems: int | None = None
    device_elems: int = 0

    def needs_pieces(self, space: tuple[Size, ...], axes: tuple[int, ...]) -> bool:
        """Whether rows must be cut in pieces, which only a reduction in one walk allows."""
        whole = product_of(space[axis] for axis in axes)
        length = self.at(whole)
        kept = [axis for axis in range(len(space)) if axis not in axes and space[axis] != 1]
        teams = self.at(product_of(space[axis] for axis in kept))
        if is_across(space, axes):
            neighbours = max(1, self.at(space[kept[-1]]))
            teams = teams // neighbours * -(-neighbours // ROWS_ACROSS)
            if teams < self.rows // _FEW_TEAMS:
                length *= min(neighbours, ROWS_ACROSS)
        elif isinstance(whole, int) and whole <= self.multiprocessors * KEPT_EACH:
            teams *= min(self.multiprocessors, -(-whole // LONG_ROW))
        return length > LONG_ROW and teams < self.rows

    def reads_again(
        self, space: tuple[Size, ...], axes: tuple[int, ...], elem_bytes: int = 4
    ) -> bool:
        """Whether each further walk over a row is another kernel's, or reads it from memory again
        where that takes long: `elem_bytes` for each element.
        """
        if self.held_elems is None or self.needs_pieces(space, axes):
            return self.needs_pieces(space, axes)
        whole = product_of(space[axis] for axis in axes)
        most = self.held_elems * 4 // max(elem_bytes, 4)
        if is_across(space, axes):
            most = min(most, KEPT_ACROSS)
        elif isinstance(whole, int) and self.multiprocessors > 1:
            most = self.multiprocessors * KEPT_EACH * 4 // elem_bytes
        return self.at(whole) > most

    def kept_by_all(
        self, space: tuple[Size, ...], axes: tuple[int, ...], elem_bytes: int = 4
    ) -> bool:
        """Whether all multiprocessors keep a row together that several of them do not, and there
        are rows enough for others to have one each, where operands do not allow it.
        """
        whole = product_of(space[axis] for axis in axes)
        if not isinstance(whole, int) or is_across(space, axes) or self.needs_pieces(space, axes):
            return False
        few = self.multiprocessors * KEPT_EACH * 4
        return few < whole * elem_bytes <= self.device_elems * 4

    def at(self, size: Size) -> int:
        """Of the examples, and of a typical size where there is none."""
        return number_at(size, self.sizes)


def parallelism(target: Target, conditions: Conditions = NO_CONDITIONS) -> Parallelism:
    return Parallelism(
        target.rows_in_flight,
        target.cluster_blocks,
        conditions.sizes,
        target.held_row_elems,
        target.device_blocks * DEVICE_EACH,
    )


def rows_of(
    nodes: Sequence[Node],
    results: Sequence[Node],
    space: tuple[Size, ...],
    axes: tuple[int, ...],
    pieces: bool,
    most: int,
) -> Rows | None:
    """The rows by which all of `nodes` can be computed together, or None if they cannot.

    With `pieces` rows are cut, so one walk has to do and nothing of an element's may be stored.
    Values may be needed at `most` places.
    """
    levels = Levels(frozenset(node.serial for node in nodes), space, axes, most)
    walks = 0
    try:
        for node in results:
            coords = result_coords(node.type.shape, space, axes)
            if coords is None:
                return None
            level = levels.of(node, coords)
            of_row = is_of_row(coords)
            if (of_row and level == 0) or (pieces and not of_row):
                return None
            walks = max(walks, level if of_row else level + 1)
    except NotOfRow:
        return None
    found = sorted(set(levels.completed.values()))
    if pieces and len(found) > 1:
        return None
    by_level = {level: [n for n, at in levels.completed.items() if at == level] for level in found}
    ordered = tuple(tuple(n for n in nodes if n in by_level[level]) for level in found)
    return Rows(space, axes, ordered, max(walks, len(found)))


def scanned_rows_of(
    nodes: Sequence[Node],
    results: Sequence[Node],
    space: tuple[Size, ...],
    axes: tuple[int, ...],
    most: int,
) -> Rows | None:
    """The rows by which scans along one axis and all else of `nodes` can be computed in one walk:
    no scan needs another, and each result has the shape of the space. None if they cannot.
    """
    levels = Levels(frozenset(node.serial for node in nodes), space, axes, most)
    try:
        for node in results:
            if node.type.shape != space:
                return None
            levels.of(node, space_coords(space, axes))
    except NotOfRow:
        return None
    scans = tuple(node for node in nodes if node in levels.completed)
    return Rows(space, axes, (scans,), 2)
