"""Which computing nodes share a kernel.

A cluster is a set of computing nodes whose results all have one shape, the iteration space,
together with the nodes that only feed them through views and broadcasts and are computed where they
are read. Merging is greedy along edges, until nothing more can be merged, and never makes the graph
of clusters cyclic.

A matrix product is the anchor of a cluster: what reads its result element by element joins it, and
nothing that it needs does, nor what only a reduction reads of a value that is in memory anyway.

A reduction gives its cluster rows: the iteration space is that of its operand, and what joins it is
computed for each element of a row, or once for the row (see rows.py). A scan does, too; what joins
it is computed for each element, before or after.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from ..ir.attrs import GivenBackAttrs, ScanAttrs
from ..ir.expr import Size
from ..ir.graph import Node
from ..ir.kernels.convolution import Convolution
from ..ir.ops import Kind, Op
from ..ir.views import MOVING_VIEWS, behind_views, is_free_view, is_moved
from .places import HERE, Way, keeps_order, places_of
from .reachability import Reach, reach_of
from .rows import Parallelism, rows_of, scanned_rows_of
from .two_kernels import folds_and_maps, kept_by_all, walk_apart
from .uses import Uses, computes, index_of, reads_of
from .windows import REPEATING, is_worth_repeating

# More live values than this spill registers, whatever the order. Counts a node once for every
# place at which it is evaluated.
MAX_CLUSTER_NODES = 96
ANY_ROWS = Parallelism()


@dataclass(slots=True, eq=False)
class Cluster:
    """`space` is the shape of every result, or, where there are `rows` (the axes that are reduced),
    that of the elements of all rows; `nodes` keeps topological order. `scan`: how rows are scanned.
    """

    space: tuple[Size, ...]
    nodes: list[Node]
    anchor: Node | None = None
    rows: tuple[int, ...] | None = None
    scan: ScanAttrs | None = None


@dataclass(slots=True)
class _Fusion:
    uses: Uses
    reach: Reach
    parallelism: Parallelism
    flops_per_byte: float
    repeats: bool
    alone: Collection[int]
    only_reduced: Collection[int]
    member: dict[int, Cluster] = field(default_factory=dict)
    merges: int = 0


def fuse(
    uses: Uses,
    parallelism: Parallelism = ANY_ROWS,
    flops_per_byte: float = math.inf,
    alone: Collection[int] = (),
) -> tuple[Cluster, ...]:
    """Clusters of computing nodes and products, by their first node; each node is in exactly
    one. The target does so many operations while it moves a byte. Nothing joins the products of
    the serials `alone`.
    """
    repeats = any(node.op in REPEATING for node in uses.nodes)
    reach = reach_of(uses)
    reduced = _only_reduced(uses, reach)
    state = _Fusion(uses, reach, parallelism, flops_per_byte, repeats, alone, reduced)
    computing = [n for n in uses.nodes if computes(n) and n.serial not in uses.paddings]
    for node in computing:
        state.member[node.serial] = _alone(node)
    anchors = [node for node in uses.nodes if node.serial in uses.products]
    for node in anchors:
        state.member[node.serial] = Cluster(node.type.shape, [node], node)
    merges = -1
    while merges < state.merges:  # what is merged now can make room for more
        merges = state.merges
        _merge_edges(state, computing)
        # Backwards, the readers of a value are one cluster before it is asked whether it feeds only
        # one.
        _merge_edges(state, computing[::-1])
        _merge_siblings(state)
    return tuple(dict.fromkeys(state.member[node.serial] for node in (*computing, *anchors)))


def _only_reduced(uses: Uses, reach: Reach) -> frozenset[int]:
    """What is computed of one value for a reduction alone, where something behind the reduction
    reads that value, too, as the squares of an RMS norm. The value is in memory then, and the
    reduction's kernel reads it: a product that made the squares would write as many bytes more.
    """
    found: set[int] = set()
    for reduction in uses.nodes:
        if reduction.kind is not Kind.REDUCTION:
            continue
        own: list[Node] = []
        node = behind_views(reduction.inputs[0])
        while node.kind is Kind.POINTWISE and not uses.leaves_memory(node):
            read = {behind_views(o) for o in node.inputs if behind_views(o).op is not Op.CONST}
            if len(read) != 1 or not {reduction, *own}.issuperset(uses.readers[node.serial]):
                break
            own.append(node)
            (node,) = read
        place, readers = uses.place[reduction.serial], uses.readers[node.serial]
        if any(reach.leads_to(place, uses.place[reader.serial]) for reader in readers):
            found.update(each.serial for each in own)
    return frozenset(found)


def _alone(node: Node) -> Cluster:
    if node.kind is Kind.REDUCTION:
        return Cluster(node.inputs[0].type.shape, [node], rows=node.attrs.axes)
    if node.kind is Kind.SCAN:
        return Cluster(node.type.shape, [node], rows=(node.attrs.axis,), scan=node.attrs)
    return Cluster(node.type.shape, [node])


def _merge_edges(state: _Fusion, readers: list[Node]) -> None:
    for node in readers:
        for operand in node.inputs:
            _merge_edge(state, behind_views(operand), node, direct=not is_free_view(operand))


def _merge_edge(state: _Fusion, producer: Node, reader: Node, direct: bool) -> None:
    if producer.serial not in state.member:
        return
    upper, lower = state.member[producer.serial], state.member[reader.serial]
    if upper is lower:
        return
    if upper.rows or lower.rows:
        _try_merge(state, upper, lower, upper.space if upper.rows else lower.space)
        return
    same_space = direct and upper.space == lower.space and reader.op not in MOVING_VIEWS
    # Otherwise the results of `upper` would have another shape than the iteration space.
    if same_space or (upper.anchor is None and _only_feeds(state.uses, upper, lower)):
        _try_merge(state, upper, lower, lower.space)


def _only_feeds(uses: Uses, upper: Cluster, lower: Cluster) -> bool:
    """Whether nothing of `upper` is read outside the two clusters: then it can be computed in
    place.
    """
    inside = {node.serial for node in (*upper.nodes, *lower.nodes)}
    return all(
        not uses.leaves_memory(node) and all(r.serial in inside for r in uses.readers[node.serial])
        for node in upper.nodes
    )


def _merge_siblings(state: _Fusion) -> None:
    """Clusters of one iteration space that read the same full-size value read it once together."""
    for operand in state.uses.nodes:
        apart: list[Node] = []
        for user in state.uses.users[operand.serial]:
            if operand.op is Op.CONST or not computes(user):
                continue
            whole = operand.type.shape == state.member[user.serial].space
            if whole and not _joins_one(state, apart, user):
                apart.append(user)


def _joins_one(state: _Fusion, apart: list[Node], user: Node) -> bool:
    """Whether the user's cluster is, or becomes, one with the cluster of one of the others."""
    for other in apart:
        left, right = state.member[other.serial], state.member[user.serial]
        if left.space == right.space and _try_merge(state, left, right, left.space):
            return True
    return False


def _try_merge(state: _Fusion, left: Cluster, right: Cluster, space: tuple[Size, ...]) -> bool:
    """Whether the two are one now, or were already."""
    if left is right:
        return True
    if len(left.nodes) + len(right.nodes) > MAX_CLUSTER_NODES:
        return False
    if left.anchor and right.anchor:
        return False
    if any(c.anchor is not None and c.anchor.serial in state.alone for c in (left, right)):
        return False
    anchor = left.anchor or right.anchor
    if anchor and any(node.serial in state.only_reduced for node in (*left.nodes, *right.nodes)):
        return False
    rows = left.rows or right.rows
    if rows and not _may_share_rows(left, right):
        return False
    place = state.uses.place
    first, second = (place[cluster.nodes[0].serial] for cluster in (left, right))
    if state.reach.returns(first, second):
        return False  # neither of the two could run first
    nodes = sorted((*left.nodes, *right.nodes), key=lambda node: place[node.serial])
    if any(isinstance(node.attrs, GivenBackAttrs) for node in nodes):
        return False  # a convolution's kernel writes it
    if not _has_indices(nodes) or not _may_be_moved(nodes):
        return False
    scan = left.scan or right.scan
    if rows:
        if not _have_rows(state, nodes, space, rows, scan is not None):
            return False
    elif not _in_one_loop(state, anchor, nodes):
        return False
    if state.repeats:
        upper = left if first < second else right
        if not is_worth_repeating(state.uses, upper.nodes, nodes, state.flops_per_byte):
            return False
    state.reach.merge(first, second)
    state.merges += 1
    merged = Cluster(space, nodes, anchor, rows, scan)
    for node in nodes:
        state.member[node.serial] = merged
    return True


def _has_indices(nodes: list[Node]) -> bool:
    """Whether the indices that are read are in memory, and not what the nodes compute."""
    inside = {node.serial for node in nodes}
    return all(index_of(node).serial not in inside for node in nodes if node.op is Op.GATHER)


def _may_be_moved(nodes: list[Node]) -> bool:
    """Whether kernels read and write what is moved into another order at the speed of a copy, where
    anything is: those of elements alone do.
    """
    moved = any(map(is_moved, nodes))
    return not moved or all(node.kind is Kind.POINTWISE for node in nodes)


def _may_share_rows(left: Cluster, right: Cluster) -> bool:
    if left.anchor or right.anchor:
        return False
    if not left.rows or not right.rows:
        return True
    return (left.rows, left.scan, left.space) == (right.rows, right.scan, right.space)


def _have_rows(
    state: _Fusion, nodes: list[Node], space: tuple[Size, ...], rows: tuple[int, ...], scanned: bool
) -> bool:
    results = state.uses.results(nodes)
    if scanned:
        return scanned_rows_of(nodes, results, space, rows, MAX_CLUSTER_NODES) is not None
    pieces = state.parallelism.needs_pieces(space, rows)
    found = rows_of(nodes, results, space, rows, pieces, MAX_CLUSTER_NODES)
    if found is None or found.num_walks == 1:
        return found is not None
    if _are_kept_by_all(state, nodes):
        return folds_and_maps(found)
    return not _walk_apart(state, nodes)


def _are_kept_by_all(state: _Fusion, nodes: list[Node]) -> bool:
    """Whether all multiprocessors keep the rows together."""
    users = state.uses.users
    folds = [node for node in nodes if node.kind is Kind.REDUCTION]
    return all(kept_by_all(f, users[f.inputs[0].serial], state.parallelism) for f in folds)


def _walk_apart(state: _Fusion, nodes: list[Node]) -> bool:
    """Whether each walk is better another kernel's, and what is computed of an element for folds is
    for nothing else: it would have to be stored.
    """
    folds = [node for node in nodes if node.kind is Kind.REDUCTION]
    users = state.uses.users
    if not all(walk_apart(f, users[f.inputs[0].serial], state.parallelism) for f in folds):
        return False
    inside = {node.serial for node in nodes}
    elements: dict[int, Node] = {}
    waiting = [behind_views(fold.inputs[0]) for fold in folds]
    while waiting:
        node = waiting.pop()
        if node.serial in inside and node.kind is not Kind.REDUCTION:
            elements[node.serial] = node
            waiting += map(behind_views, node.inputs)
    return all(
        reader.serial in elements or reader.kind is Kind.REDUCTION
        for serial in elements
        for reader in state.uses.readers[serial]
    )


def _in_one_loop(state: _Fusion, anchor: Node | None, nodes: list[Node]) -> bool:
    ways = places_of(nodes, state.uses.results(nodes), MAX_CLUSTER_NODES)
    return ways is not None and (anchor is None or _follows(state.uses, anchor, nodes, ways))


def _read_along(nodes: list[Node], ways: dict[int, frozenset[Way]]) -> bool:
    """Whether each operand is read once, along axes of the result, and in their order, as its
    epilogue reads vectors.
    """
    inside = {node.serial for node in nodes}
    computing = (node for node in nodes if computes(node))
    operands = (behind_views(operand) for node in computing for operand in node.inputs)
    others = [o for o in operands if o.serial not in inside and o.op is not Op.CONST]
    return all(
        o.op is not Op.IOTA and len(ways[o.serial]) == 1 and all(map(keeps_order, way))
        for o in others
        for way in ways[o.serial]
    )


def _follows(uses: Uses, anchor: Node, nodes: list[Node], ways: dict[int, frozenset[Way]]) -> bool:
    """Whether the nodes need the product where it is made, and it needs none of them."""
    read = {behind_views(operand).serial for operand in reads_of(uses.products[anchor.serial])}
    if isinstance(uses.products[anchor.serial], Convolution) and not _read_along(nodes, ways):
        return False
    return ways[anchor.serial] == {HERE} and not any(node.serial in read for node in nodes)
