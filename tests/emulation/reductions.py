"""Reductions of graphs as CUDA, and how they are run under emulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tests.emulation.emulate import emulate
from tests.kernels import poisoned
from tests.unit.plan.plans import graph, plan_of

from opweld.ir.expr import evaluate
from opweld.ir.graph import Graph, Node
from opweld.ir.interpret import interpret_outputs
from opweld.ir.plan import Group
from opweld.ir.reduction import Folding, Reduction
from opweld.lower import lower

Sizes = Mapping[str, int]
# Bytes of a row's folds, at least.
_PARTIAL_BYTES = 64


@dataclass(frozen=True, slots=True)
class Case:
    """A graph that is one reduction."""

    graph: Graph
    group: Group
    reduction: Reduction


def case(name: str, *outputs: Node, cut: bool | None = None) -> Case:
    """The only group of a graph; `name` ends its name. `cut`: against what the plan says."""
    plan = plan_of(*outputs, suffix=f"_{name}")
    (group,), (reduction,) = plan.groups, lower(plan)
    assert isinstance(reduction, Reduction)
    cut = reduction.cut if cut is None else cut
    return Case(graph(*outputs), group, replace(reduction, cut=cut))


def exact(case: Case, feeds: Mapping[str, np.ndarray], sizes: Sizes) -> list[np.ndarray]:
    """What the graph means, in float64."""
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
    reduction = case.reduction
    folding = reduction.strided if variant == "strided" else reduction.contiguous
    operands = [feeds[node.attrs.access] for node in case.group.inputs]
    results = [
        poisoned([evaluate(size, sizes) for size in node.type.shape], node.type.dtype)
        for node in case.group.outputs
    ]
    num_rows, length = evaluate(reduction.num_rows, sizes), evaluate(reduction.length, sizes)
    partials = np.full(pieces * num_rows * _PARTIAL_BYTES, 0xA5, np.uint8)
    largest = 2**31 if wide else max(num_rows * length, *(a.size for a in operands), 1)
    arrays = [(results if b.written else operands)[b.source] for b in folding.buffers]
    arguments = [
        *map(_memory, arrays),
        *_extents(folding, arrays, sizes),
        *(num_rows, length),
        *([pieces, partials] if reduction.cut else []),
        *(largest, int(aligned)),
    ]
    emulate(text, f"{reduction.group}_{variant}", arguments, order=order)
    return [results[case.group.outputs.index(node)] for node in case.graph.outputs]


def _extents(folding: Folding, arrays: Sequence[np.ndarray], sizes: Sizes) -> list[int]:
    """The integer arguments of a launch, in order."""
    by_name = {b.name: array for b, array in zip(folding.buffers, arrays, strict=True)}
    numbers = []
    for extent in folding.extents:
        if extent.buffer is None or extent.axis is None:
            numbers.append(sizes[extent.name])
        else:
            array = by_name[extent.buffer]
            numbers.append(array.strides[extent.axis] // array.itemsize)
    return numbers


def _memory(array: np.ndarray) -> np.ndarray:
    """All memory between the first and the last element of a view with gaps."""
    if not array.size:
        return array.reshape(-1)
    pairs = zip(array.shape, array.strides, strict=True)
    reach = sum((n - 1) * s // array.itemsize for n, s in pairs)
    return np.lib.stride_tricks.as_strided(array, (reach + 1,), (array.itemsize,))


def with_gaps(array: np.ndarray) -> np.ndarray:
    """The same values in memory with other strides: axes reversed, every second element unused."""
    if array.ndim == 0:
        return array
    storage = np.zeros([2 * size for size in array.shape[::-1]], array.dtype)
    view = storage.T[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view
