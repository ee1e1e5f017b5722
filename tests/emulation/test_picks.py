"""Reads by the numbers of an index: kernels mean the graph, and read nothing that is not there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.emulation.emulate import EmulationFault
from tests.emulation.test_generated import BATCH, F32, graph_of, tensor
from tests.kernels import executor, run_groups, with_gaps
from tests.plan_meaning import run_plan
from tests.reduction_kernels import rows_executor

from opweld.ir.attrs import CatAttrs, GatherAttrs, PadAttrs, ReduceAttrs, ScanAttrs
from opweld.ir.expr import evaluate
from opweld.ir.graph import Arena, Graph, Node
from opweld.ir.numpy.interpret import interpret
from opweld.ir.ops import Op
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render import render
from opweld.target import CPU, SM_90A

I32, I64 = DType.I32, DType.I64


def gathered(arena: Arena) -> Graph:
    x, index = tensor(arena, "x", BATCH, 9), tensor(arena, "index", BATCH, 6, dtype=I64)
    return graph_of((arena.make(Op.EXP, _pick(arena, x, index, GatherAttrs(1))),), (x, index))


def rows_of_table(arena: Arena) -> Graph:
    table, index = tensor(arena, "table", 1, 9, 8), tensor(arena, "index", BATCH, 3, 1, dtype=I64)
    row = tensor(arena, "row", 8)
    read = _pick(arena, table, index, GatherAttrs(1))
    return graph_of((arena.make(Op.ADD, read, row),), (table, index, row))


def from_either_end(arena: Arena) -> Graph:
    x, index = tensor(arena, "x", BATCH, 9, 4), tensor(arena, "signed", 1, 6, 1, dtype=I32)
    twice = arena.make(Op.MUL, x, arena.const(2.0, F32))
    return graph_of((_pick(arena, twice, index, GatherAttrs(1, wraps=True)),), (x, index))


def with_ignored(arena: Arena) -> Graph:
    x, index = tensor(arena, "x", BATCH, 9), tensor(arena, "ignoring", BATCH, 1, dtype=I64)
    read = _pick(arena, x, index, GatherAttrs(1, ignored=-100))
    return graph_of((arena.make(Op.NEG, read),), (x, index))


def beside_others(arena: Arena) -> Graph:
    """Under the guards of a join and of a padding, and along an axis of two reads in turn."""
    x, index = tensor(arena, "x", BATCH, 9), tensor(arena, "index", BATCH, 5, dtype=I64)
    wide = arena.make(Op.PAD, arena.make(Op.ABS, x), attrs=PadAttrs((0, 2), (0, 1), 0.5))
    again = _pick(arena, wide, index, GatherAttrs(1))
    twice = _pick(arena, _pick(arena, x, index, GatherAttrs(1)), _low(arena), GatherAttrs(1))
    joined = arena.make(Op.CAT, again, x, twice, attrs=CatAttrs(1))
    return graph_of((arena.make(Op.COS, joined),), (x, index, _low(arena)))


def _low(arena: Arena) -> Node:
    return tensor(arena, "low", BATCH, 3, dtype=I64)


CASES = (gathered, rows_of_table, from_either_end, with_ignored, beside_others)


def normalised(arena: Arena) -> Graph:
    """What several walks over a row read."""
    table, index = tensor(arena, "table", 1, 9, 64), tensor(arena, "index", BATCH, 3, 1, dtype=I64)
    x = _pick(arena, table, index, GatherAttrs(1))
    largest = arena.make(Op.AMAX, x, attrs=ReduceAttrs((2,)))
    powers = arena.make(Op.EXP, arena.make(Op.SUB, x, largest))
    total = arena.make(Op.SUM, powers, attrs=ReduceAttrs((2,)))
    return graph_of((arena.make(Op.DIV, powers, total),), (table, index))


def of_a_row(arena: Arena) -> Graph:
    """The logarithm of one probability of a row, which is computed once for it."""
    x, index = tensor(arena, "x", BATCH, 9), tensor(arena, "index", BATCH, 1, dtype=I64)
    largest = arena.make(Op.AMAX, x, attrs=ReduceAttrs((1,)))
    shifted = arena.make(Op.SUB, x, largest)
    total = arena.make(Op.SUM, arena.make(Op.EXP, shifted), attrs=ReduceAttrs((1,)))
    logs = arena.make(Op.SUB, shifted, arena.make(Op.LOG, total))
    return graph_of((_pick(arena, logs, index, GatherAttrs(1)),), (x, index))


def summed(arena: Arena) -> Graph:
    """Elements of a row that lie elsewhere, in one walk; and others in walks across rows."""
    x, index = tensor(arena, "x", BATCH, 9), tensor(arena, "index", BATCH, 36, dtype=I64)
    low = tensor(arena, "low", 9, 12, dtype=I64)
    along = arena.make(Op.SUM, _pick(arena, x, index, GatherAttrs(1)), attrs=ReduceAttrs((1,)))
    square = tensor(arena, "square", 9, 12)
    read = _pick(arena, square, low, GatherAttrs(0))
    across = arena.make(Op.AMAX, read, attrs=ReduceAttrs((0,)))
    return graph_of((along, across), (x, index, square, low))


def scanned(arena: Arena) -> Graph:
    x, index = tensor(arena, "x", BATCH, 9), tensor(arena, "index", BATCH, 32, dtype=I64)
    read = _pick(arena, x, index, GatherAttrs(1))
    total = arena.make(Op.CUMSUM, read, attrs=ScanAttrs(1))
    return graph_of((arena.make(Op.MUL, total, read),), (x, index))


ROW_CASES = (normalised, of_a_row, summed, scanned)


def _pick(arena: Arena, x: Node, index: Node, attrs: GatherAttrs) -> Node:
    return arena.make(Op.GATHER, x, index, attrs=attrs)


def feeds_of(graph: Graph, sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {node.attrs.access: _feed(node, sizes, rng) for node in graph.inputs}


def _feed(node: Node, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    shape = [evaluate(size, sizes) for size in node.type.shape]
    if node.type.dtype is F32:
        return rng.standard_normal(shape).astype(np.float32)
    low, high = {"signed": (-9, 9), "low": (0, 5)}.get(node.attrs.name, (0, 9))
    numbers = rng.integers(low, high, shape)
    if node.attrs.name == "ignoring":
        numbers = np.where(rng.random(shape) < 0.3, -100, numbers)
    return numbers.astype(np.int32 if node.type.dtype is I32 else np.int64)


@pytest.mark.parametrize("batch", [1, 5, 70])
@pytest.mark.parametrize("language", ["cuda", "c++"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_elements(case: Callable[[Arena], Graph], language: str, batch: int) -> None:
    graph, sizes = case(Arena()), {"s0": batch}
    feeds = feeds_of(graph, sizes, batch)
    spread = {name: with_gaps(array) for name, array in feeds.items()}
    wanted = interpret(graph, feeds, sizes)
    for given, variant in ((feeds, "contiguous"), (spread, "strided")):
        got = run_groups(graph, given, sizes, language=language, variant=variant)
        for mine, theirs in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("batch", [1, 5, 70])
@pytest.mark.parametrize("language", ["cuda", "c++"])
@pytest.mark.parametrize("case", ROW_CASES, ids=lambda case: case.__name__)
def test_rows(case: Callable[[Arena], Graph], language: str, batch: int) -> None:
    graph, sizes = case(Arena()), {"s0": batch}
    feeds = feeds_of(graph, sizes, batch)
    spread = {name: with_gaps(array) for name, array in feeds.items()}
    wanted = interpret(graph, feeds, sizes)
    plan = make_plan(graph, SM_90A if language == "cuda" else CPU)
    kernels = lower(plan)
    text = render(graph.name, kernels, language).text
    execute, execute_rows = executor(text, language), rows_executor(text, language)
    for given, variant in ((feeds, "contiguous"), (spread, "strided"), (feeds, "")):
        ways = {"execute": execute, "execute_rows": execute_rows} if variant else {}
        got = run_plan(plan, kernels, given, sizes, variant=variant or "contiguous", **ways)
        for mine, theirs in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("number", [9, -1, 2**40, -(2**62)])
def test_a_number_of_no_element_ends_a_cuda_kernel(number: int) -> None:
    graph, sizes = gathered(Arena()), {"s0": 5}
    feeds = feeds_of(graph, sizes, 0)
    feeds["index"][3, 4] = number
    with pytest.raises(EmulationFault, match="index out of range"):
        run_groups(graph, feeds, sizes, language="cuda")
