"""Scans of graphs as CUDA, and how they are run under emulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from tests.kernels import with_gaps
from tests.reduction_kernels import Launch, emulated
from tests.unit.plan.plans import graph, plan_of

from opweld.ir.expr import evaluate
from opweld.ir.graph import Graph, Node
from opweld.ir.kernels.reduction import Scan
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.plan import Group
from opweld.lower import lower

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Case:
    """A graph that is one group of scans."""

    graph: Graph
    group: Group
    scan: Scan


def case(name: str, *outputs: Node, cut: bool = False) -> Case:
    """The only group of a graph; `name` ends its name. `cut`: against what the plan says."""
    plan = plan_of(*outputs, suffix=f"_{name}")
    (group,), (scan,) = plan.groups, lower(plan)
    assert isinstance(scan, Scan)
    return Case(graph(*outputs), group, replace(scan, cut=cut))


def exact(case: Case, feeds: Mapping[str, np.ndarray], sizes: Sizes) -> list[np.ndarray]:
    """What the graph means, in float64."""
    with np.errstate(all="ignore"):
        return list(interpret_outputs(case.graph, feeds, sizes, precision="float64"))


def run(
    text: str,
    case: Case,
    feeds: Mapping[str, np.ndarray],
    sizes: Sizes,
    *,
    variant: str = "contiguous",
    pieces: int = 1,
    aligned: bool = True,
    wide: bool = False,
    order: str = "forward",
) -> list[np.ndarray]:
    """The results of one call. Feeds may have any strides with variant "strided"; `wide` asks for
    64-bit indices.
    """
    folding = case.scan.strided if variant == "strided" else case.scan.contiguous
    operands = [feeds[node.attrs.access] for node in case.group.inputs]
    shapes = [[evaluate(size, sizes) for size in node.type.shape] for node in case.group.outputs]
    launch = Launch(aligned=aligned, wide_indices=wide, pieces=pieces, order=order)
    results = emulated(text, case.scan, folding, operands, shapes, sizes, launch)
    return [results[case.group.outputs.index(node)] for node in case.graph.outputs]


Calls = tuple[dict[str, object], ...]
ANY_CALL: Calls = ({}, {"aligned": False}, {"wide": True}, {"variant": "strided"})


def each_result(
    text: str, case: Case, feeds: Mapping[str, np.ndarray], sizes: Sizes, calls: Calls = ANY_CALL
) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, object]]]:
    """What each call gives, what the graph means in float64, and the call; operands have gaps where
    strides are asked for.
    """
    wanted = exact(case, feeds, sizes)
    for options in calls:
        strided = options.get("variant") == "strided"
        given = {n: with_gaps(a) for n, a in feeds.items()} if strided else feeds
        got = run(text, case, given, sizes, **options)  # type: ignore[arg-type]
        for mine, theirs in zip(got, wanted, strict=True):
            yield mine, theirs, options
