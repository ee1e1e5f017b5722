"""What copies into another order of axes take: kernels of their own, or others that move what they
compute in passing.
"""

from __future__ import annotations

from ...ir.graph import Graph, Node
from ...ir.ops import Kind
from ...ir.views import behind_views, is_moved
from ..uses import uses_of

_ROWS = (Kind.REDUCTION, Kind.SCAN)
ALONE, BEHIND_ROWS, IN_PASSING = 1.0, 0.5, 0.15
"""Shares of the time of a copy: as a kernel of its own; computed behind rows, whose kernel may be
another one; and by a kernel of elements, which then takes a fifth longer (0.023 ms for 26 MB that
lie otherwise, 0.017 in order; H200, 2026-12-01).
"""


def shares_of_copies(
    graph: Graph, tiled: frozenset[int], others: frozenset[int]
) -> list[tuple[Node, float]]:
    """The copies, and what part of their time they take where others compute what is copied, or
    read the copy. What a convolution of ours computes behind itself is read in its order, and
    written in it or, by those that are made in tiles, in that of a copy. `tiled` and `others` are
    such convolutions, by their serials.
    """
    readers = uses_of(graph).readers
    of_rows = _behind_rows(graph)
    in_tiles = _joined(graph, tiled) - of_rows
    joined = in_tiles | (_joined(graph, others) - of_rows)

    def share_of(copy: Node) -> float:
        source = behind_views(behind_views(copy).inputs[0])
        if source.serial in in_tiles and readers[source.serial] == (copy,):
            return 0.0
        computed = source.kind is Kind.POINTWISE and source.serial not in joined
        rows = any(behind_views(each).kind in _ROWS for each in source.inputs)
        if computed and readers[source.serial] == (copy,) and not rows:
            return BEHIND_ROWS if source.serial in of_rows else IN_PASSING
        read = readers[copy.serial]
        is_read_so = all(node.kind is Kind.POINTWISE and node.serial not in joined for node in read)
        return IN_PASSING if read and is_read_so else ALONE

    shares = ((copy, share_of(copy)) for copy in filter(is_moved, graph.nodes()))
    return [(copy, share) for copy, share in shares if share > 0.0]


def _joined(graph: Graph, convolutions: frozenset[int]) -> frozenset[int]:
    """The convolutions, and what is computed of their results' elements."""
    found = set(convolutions)
    for node in graph.nodes():
        before = (behind_views(each) for each in node.inputs)
        alike = (each for each in before if each.type.shape == node.type.shape)
        if node.kind is Kind.POINTWISE and any(each.serial in found for each in alike):
            found.add(node.serial)
    return frozenset(found)


def _behind_rows(graph: Graph) -> set[int]:
    """What is computed, element by element, of what rows have been reduced to."""
    found = set[int]()
    for node in graph.nodes():
        if node.kind is not Kind.POINTWISE:
            continue
        before = [behind_views(each) for each in node.inputs]
        if any(each.kind in _ROWS or each.serial in found for each in before):
            found.add(node.serial)
    return found


def reductions_over_space(graph: Graph, permuted: frozenset[int]) -> list[Node]:
    """What is reduced over all of its space and read once more, of these tensors with their
    channels last: the values of a channel lie apart, and no row of them is kept on the chip.
    """
    readers = uses_of(graph).readers
    found = dict[int, Node]()
    for node in graph.nodes():
        if node.kind is Kind.REDUCTION and node.inputs[0].serial in permuted:
            operand = node.inputs[0]
            again = any(each.kind is Kind.POINTWISE for each in readers[operand.serial])
            if again and set(range(1, operand.type.rank - 1)) == {*node.attrs.axes}:
                found.setdefault(operand.serial, operand)
    return list(found.values())
