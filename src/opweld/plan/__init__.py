"""Graph -> Plan: which nodes share a kernel, in which order groups run, and how each one runs."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph
from ..ir.measured import NO_TABLE, Table
from ..ir.plan import NO_CONDITIONS, Conditions, Plan
from ..target import Target
from .attention.long import in_two_products
from .buffers import reuse_buffers
from .convolutions import with_explicit_biases
from .fusion import fuse
from .groups import make_groups
from .layouts import in_channels_last
from .products.choice import choose_products
from .products.host_bound import is_host_bound
from .products.kept import with_kept_results
from .products.moved_results import with_moved_results
from .products.precision import convolves_in_tf32
from .products.prologues import fuse_prologues
from .products.row_blocks import fuse_row_blocks
from .rematerialize import rematerialized
from .rows import parallelism
from .single_pass import in_one_walk
from .squeezed import with_squeezed_results
from .uses import uses_of


def make_plan(
    graph: Graph,
    target: Target,
    excluded: frozenset[str] = frozenset(),
    suffix: str = "",
    conditions: Conditions = NO_CONDITIONS,
    table: Table = NO_TABLE,
) -> Plan:
    """The plan of a simplified graph, or of one in which folds over long rows take one walk and
    attention of long rows is products and a softmax.

    `excluded` has the names of groups that are given back to PyTorch: they become LIBRARY groups of
    the same name, so that a group which measured slower than the calls it replaced is not fused
    again. `suffix` ends the name of every kernel: it tells the variants of one file apart. `table`
    has measured schedules, which are believed over estimates.
    """
    side_by_side = parallelism(target, conditions)
    conditions = replace(conditions, tf32_convolutions=convolves_in_tf32(graph, target, conditions))
    conditions = replace(conditions, host_bound=is_host_bound(graph, target, conditions))
    graph = in_channels_last(with_explicit_biases(graph, target, conditions), target, conditions)
    graph = in_two_products(graph, target, conditions, table)
    walked = in_one_walk(graph, side_by_side)
    choice = choose_products(walked, target, conditions, table)
    graph = rematerialized(walked, side_by_side, choice.with_epilogue)
    if graph is not walked:
        choice = choose_products(graph, target, conditions, table)
    uses = uses_of(graph, choice.products)
    flops_per_byte = target.pointwise_flops_per_s / target.copy_bytes_per_s
    clusters = fuse(uses, side_by_side, flops_per_byte, choice.alone)
    groups = make_groups(uses, clusters, target, choice, excluded, suffix, conditions, table)
    groups = reuse_buffers(uses, groups)
    groups = fuse_prologues(uses, groups, target, excluded, conditions)
    groups = fuse_row_blocks(groups, target, excluded, conditions)
    groups = with_moved_results(uses, groups, conditions)
    groups = with_squeezed_results(graph, uses, groups)
    return Plan(graph, target.name, with_kept_results(graph, groups, target, conditions))
