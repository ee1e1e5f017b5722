"""Which copies into another order of axes are kernels of their own."""

from __future__ import annotations

from ...ir.graph import Graph, Node
from ...ir.ops import Kind
from ...ir.views import behind_views, is_copy
from ..uses import uses_of

_ROWS = (Kind.REDUCTION, Kind.SCAN)


def unfused_copies(graph: Graph, tiled: frozenset[int], others: frozenset[int]) -> list[Node]:
    """Copies that are kernels of their own: no other computes what is copied, or reads the copy.
    What a convolution of ours computes behind itself is read in its order, and written in it or,
    by those that are made in tiles, in that of a copy. `tiled` and `others` are such convolutions,
    by their serials.
    """
    readers = uses_of(graph).readers
    in_tiles = _joined(graph, tiled)
    joined = in_tiles | _joined(graph, others)

    def is_in_passing(copy: Node) -> bool:
        source = behind_views(behind_views(copy).inputs[0])
        if source.serial in in_tiles and readers[source.serial] == (copy,):
            return True
        computed = source.kind is Kind.POINTWISE and source.serial not in joined
        rows = any(behind_views(each).kind in _ROWS for each in source.inputs)
        if computed and readers[source.serial] == (copy,) and not rows:
            return True
        read = readers[copy.serial]
        return bool(read) and all(
            node.kind is Kind.POINTWISE and node.serial not in joined for node in read
        )

    copies = (node for node in graph.nodes() if is_copy(node))
    return [copy for copy in copies if not is_in_passing(copy)]


def _joined(graph: Graph, convolutions: frozenset[int]) -> frozenset[int]:
    """The convolutions, and what is computed of their results' elements."""
    found = set(convolutions)
    for node in graph.nodes():
        before = (behind_views(each) for each in node.inputs)
        alike = (each for each in before if each.type.shape == node.type.shape)
        if node.kind is Kind.POINTWISE and any(each.serial in found for each in alike):
            found.add(node.serial)
    return frozenset(found)
