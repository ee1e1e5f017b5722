"""Kernels that the compiler generates compute what the graph means, whatever the layout and
size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.kernels import run_groups, with_gaps

from opweld.ir.attrs import (
    CastAttrs,
    CatAttrs,
    FlipAttrs,
    IotaAttrs,
    PadAttrs,
    PermuteAttrs,
    ShapeAttrs,
    SliceAttrs,
)
from opweld.ir.expr import symbol
from opweld.ir.graph import Arena, Graph, Leaf, Node
from opweld.ir.numpy.interpret import interpret
from opweld.ir.ops import Op
from opweld.ir.types import DType, TensorType

F32 = DType.F32
BATCH = symbol("s0")


def graph_of(outputs: tuple[Node, ...], inputs: tuple[Node, ...]) -> Graph:
    structure = ("tuple", tuple(Leaf(index) for index in range(len(outputs))))
    return Graph("case", inputs, (), outputs, structure)


def tensor(arena: Arena, name: str, *shape: object, dtype: DType = F32) -> Node:
    return arena.source(Op.INPUT, name, name, TensorType(dtype, tuple(shape)))  # type: ignore[arg-type]


def chain(arena: Arena) -> Graph:
    x = tensor(arena, "x", BATCH, 24)
    half = arena.make(Op.MUL, x, arena.const(0.5, F32))
    return graph_of((arena.make(Op.ADD, arena.make(Op.TANH, half), x),), (x,))


def broadcasts(arena: Arena) -> Graph:
    x, row, column = (
        tensor(arena, "x", BATCH, 24),
        tensor(arena, "row", 24),
        tensor(arena, "column", BATCH, 1),
    )
    scaled = arena.make(Op.MUL, arena.make(Op.ADD, x, row), column)
    positive = arena.make(Op.GT, scaled, arena.const(0.0, F32))
    return graph_of((arena.make(Op.SIGMOID, scaled), positive), (x, row, column))


def odd_rows(arena: Arena) -> Graph:
    x, row = tensor(arena, "x", BATCH, 7), tensor(arena, "row", 7)
    return graph_of((arena.make(Op.SUB, x, row),), (x, row))


def middle_broadcast(arena: Arena) -> Graph:
    x, channel = tensor(arena, "x", BATCH, 3, 4, 5), tensor(arena, "channel", 1, 3, 1, 1)
    return graph_of((arena.make(Op.MUL, x, channel),), (x, channel))


def transposed(arena: Arena) -> Graph:
    x, y = tensor(arena, "x", BATCH, 6), tensor(arena, "y", 6, BATCH)
    turned = arena.make(Op.PERMUTE, arena.make(Op.EXP, x), attrs=PermuteAttrs((1, 0)))
    return graph_of((arena.make(Op.ADD, turned, y),), (x, y))


def reshaped(arena: Arena) -> Graph:
    x, y = tensor(arena, "x", BATCH, 4, 6), tensor(arena, "y", BATCH, 3, 8)
    flat = arena.make(Op.RESHAPE, x, attrs=ShapeAttrs((BATCH, 3, 8)))
    turned = arena.make(Op.PERMUTE, flat, attrs=PermuteAttrs((0, 2, 1)))
    back = arena.make(Op.RESHAPE, turned, attrs=ShapeAttrs((BATCH, 3, 8)))
    return graph_of((arena.make(Op.MUL, back, y),), (x, y))


def sliced(arena: Arena) -> Graph:
    x = tensor(arena, "x", BATCH, 16)
    left = arena.make(Op.SLICE, x, attrs=SliceAttrs(1, 0, 1, 8))
    right = arena.make(Op.SLICE, x, attrs=SliceAttrs(1, 8, 1, 8))
    odd = arena.make(Op.SLICE, x, attrs=SliceAttrs(1, 1, 2, 8))
    gated = arena.make(Op.MUL, left, arena.make(Op.SIGMOID, right))
    return graph_of((arena.make(Op.ADD, gated, odd),), (x,))


def flipped(arena: Arena) -> Graph:
    x = tensor(arena, "x", BATCH, 9)
    return graph_of((arena.make(Op.SUB, x, arena.make(Op.FLIP, x, attrs=FlipAttrs((0, 1)))),), (x,))


def flipped_rows(arena: Arena) -> Graph:
    x = tensor(arena, "x", BATCH, 6, 16)
    flipped = arena.make(Op.FLIP, x, attrs=FlipAttrs((0, 1)))
    return graph_of((arena.make(Op.EXP, flipped),), (x,))


def joined(arena: Arena) -> Graph:
    x, y = tensor(arena, "x", BATCH, 5), tensor(arena, "y", BATCH, 3)
    both = arena.make(Op.CAT, arena.make(Op.EXP, x), y, arena.make(Op.NEG, x), attrs=CatAttrs(1))
    return graph_of((arena.make(Op.RELU, both),), (x, y))


def padded(arena: Arena) -> Graph:
    x = tensor(arena, "x", BATCH, 4, 5)
    wide = arena.make(Op.PAD, x, attrs=PadAttrs((0, 1, 2), (0, 2, 1), 0.25))
    return graph_of((arena.make(Op.COS, wide),), (x,))


def counted(arena: Arena) -> Graph:
    x = tensor(arena, "x", BATCH, 10)
    position = arena.iota(IotaAttrs(3, 2, 10), DType.I64)
    as_float = arena.make(Op.CAST, position, attrs=CastAttrs(F32))
    size = arena.const(BATCH, F32)
    return graph_of((arena.make(Op.DIV, arena.make(Op.MUL, x, as_float), size),), (x,))


def mixed(arena: Arena) -> Graph:
    x = tensor(arena, "x", BATCH, 12, dtype=DType.F16)
    mask = tensor(arena, "mask", BATCH, 12, dtype=DType.BOOL)
    wide = arena.make(Op.CAST, x, attrs=CastAttrs(F32))
    chosen = arena.make(Op.WHERE, mask, arena.make(Op.EXP, wide), arena.const(-1.0, F32))
    small = arena.make(Op.CAST, chosen, attrs=CastAttrs(DType.F16))
    return graph_of((chosen, small, arena.make(Op.LOGICAL_NOT, mask)), (x, mask))


def integers(arena: Arena) -> Graph:
    x, y = (tensor(arena, name, BATCH, 11, dtype=DType.I64) for name in "xy")
    mixed_bits = arena.make(Op.BITWISE_XOR, arena.make(Op.MUL, x, y), arena.const(-7, DType.I64))
    return graph_of((mixed_bits, arena.make(Op.MAXIMUM, x, y)), (x, y))


def scalar(arena: Arena) -> Graph:
    x = tensor(arena, "x")
    return graph_of((arena.make(Op.EXP, x),), (x,))


def static_wide(arena: Arena) -> Graph:
    x = tensor(arena, "x", 4099)
    return graph_of((arena.make(Op.SILU, x),), (x,))


CASES: tuple[Callable[[Arena], Graph], ...] = (
    chain,
    broadcasts,
    odd_rows,
    middle_broadcast,
    transposed,
    reshaped,
    sliced,
    flipped,
    flipped_rows,
    joined,
    padded,
    counted,
    mixed,
    integers,
    scalar,
    static_wide,
)


def feed(node: Node, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    from opweld.ir.expr import evaluate

    shape = [evaluate(size, sizes) for size in node.type.shape]
    if node.type.dtype is DType.BOOL:
        return rng.random(shape) > 0.5
    if not node.type.dtype.is_float:
        return rng.integers(-(2**40), 2**40, shape)
    return rng.standard_normal(shape).astype(
        np.float16 if node.type.dtype is DType.F16 else np.float32
    )


@pytest.mark.parametrize("batch", [1, 2, 5, 300])
@pytest.mark.parametrize("language", ["cuda", "c++"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_generated_kernels_mean_the_graph(
    case: Callable[[Arena], Graph], language: str, batch: int
) -> None:
    graph = case(Arena())
    sizes = {"s0": batch}
    rng = np.random.default_rng(batch)
    feeds = {node.attrs.access: feed(node, sizes, rng) for node in graph.inputs}
    wanted = interpret(graph, feeds, sizes)
    spread = {name: with_gaps(array) for name, array in feeds.items()}
    runs = [
        run_groups(graph, feeds, sizes, language=language),
        run_groups(graph, spread, sizes, language=language, variant="strided"),
    ]
    if language == "cuda":
        runs.append(run_groups(graph, feeds, sizes, language=language, aligned=False))
        runs.append(run_groups(graph, feeds, sizes, language=language, wide_indices=True))
    for got in runs:
        for mine, theirs in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=2e-7)
