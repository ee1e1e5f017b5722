"""Index maps against what NumPy's own views show."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.random_graphs import Builder

from opweld.ir.attrs import FlipAttrs, PermuteAttrs, ShapeAttrs, SliceAttrs, WindowAttrs
from opweld.ir.expr import Size, evaluate, symbol
from opweld.ir.graph import Arena, Node
from opweld.ir.index import align, flatten, through_view, unflatten
from opweld.ir.numpy.interpret import numbered
from opweld.ir.ops import OPS, Op
from opweld.ir.types import DType, TensorType

N = symbol("s0")
SIZES = (1, 2, 5)


def node_of(shape: tuple[Size, ...]) -> tuple[Arena, Node]:
    arena = Arena()
    return arena, arena.source(Op.INPUT, "x", "x", TensorType(DType.I64, shape))


def assert_shows(view: Node, n: int) -> None:
    """The coordinates that lowering computes lead to the elements that NumPy's view has."""
    chain = []
    node = view
    while node.op is not Op.INPUT:
        chain.append(node)
        (node,) = node.inputs
    base = tuple(evaluate(size, {"s0": n}) for size in node.type.shape)
    memory = np.arange(int(np.prod(base))).reshape(base)
    wanted = memory
    for each in reversed(chain):
        wanted = OPS[each.op].evaluate(wanted, numbered(each.attrs, {"s0": n}))  # type: ignore[misc]
    shape = tuple(evaluate(size, {"s0": n}) for size in view.type.shape)
    loops = {f"i{d}": size for d, size in enumerate(view.type.shape) if size != 1}
    coords: tuple[Size, ...] = tuple(
        symbol(f"i{d}") if size != 1 else 0 for d, size in enumerate(view.type.shape)
    )
    for each in chain:
        coords = through_view(each, coords, loops)
    assert len(coords) == len(base)
    point = dict(zip((f"i{d}" for d in range(len(shape))), np.indices(shape), strict=True))
    found = [np.broadcast_to(evaluate(c, {"s0": n, **point}), shape) for c in coords]  # type: ignore[dict-item]
    for coordinate, size in zip(found, base, strict=True):
        assert ((coordinate >= 0) & (coordinate < size)).all()
    np.testing.assert_array_equal(memory[tuple(found)] if base else memory, wanted)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("shape", "op", "attrs"),
    [
        ((N, 3, 4), Op.PERMUTE, PermuteAttrs((2, 0, 1))),
        ((N, 3, 4), Op.PERMUTE, PermuteAttrs((1, 2, 0))),
        ((N, 1, 4), Op.EXPAND, ShapeAttrs((N, 3, 4))),
        ((1, 4), Op.EXPAND, ShapeAttrs((2, N, 4))),
        ((N, 3, 4), Op.RESHAPE, ShapeAttrs((N, 12))),
        ((N, 3, 4), Op.RESHAPE, ShapeAttrs((N * 12,))),
        ((N, 3, 4), Op.RESHAPE, ShapeAttrs((N, 6, 2))),
        ((N, 3, 4), Op.RESHAPE, ShapeAttrs((3, N, 4))),
        ((N, 12), Op.RESHAPE, ShapeAttrs((N, 2, 1, 6))),
        ((1, 1), Op.RESHAPE, ShapeAttrs(())),
        ((), Op.RESHAPE, ShapeAttrs((1, 1))),
        ((N * 4,), Op.RESHAPE, ShapeAttrs((2, N * 2))),
        ((N, 8), Op.SLICE, SliceAttrs(1, 2, 1, 5)),
        ((N, 8), Op.SLICE, SliceAttrs(1, 1, 3, 2)),
        ((N, 8), Op.SLICE, SliceAttrs(0, N - 1, 1, 1)),
        ((N, 8), Op.FLIP, FlipAttrs((0,))),
        ((N, 8), Op.FLIP, FlipAttrs((1, 0))),
        ((N, 8), Op.WINDOW, WindowAttrs(1, 3, 2, 3)),
        ((8, N), Op.WINDOW, WindowAttrs(0, 2, 3, 2, 4)),
        ((N, 8), Op.WINDOW, WindowAttrs(0, N, 1, 1)),
    ],
)
def test_each_view(shape: tuple[Size, ...], op: Op, attrs: object, n: int) -> None:
    arena, x = node_of(shape)
    assert_shows(arena.make(op, x, attrs=attrs), n)


@st.composite
def compositions(draw: st.DrawFn) -> Node:
    """Up to four free views, one of another."""
    builder = Builder(lambda choices: draw(st.sampled_from(tuple(choices))), (DType.I64,))
    node = builder.inputs()[0]
    makers: list[Callable[[Node], Node | None]] = [builder.reshape, builder.expand]
    for _ in range(draw(st.integers(1, 4))):
        sized = [builder.slice, builder.flip] if node.type.rank else []
        sized += [builder.window] if node.type.rank in (1, 2, 3) else []
        turned = [builder.permute] if node.type.rank > 1 else []
        made = draw(st.sampled_from([*makers, *sized, *turned]))(node)
        node = made if made is not None and made.type.rank <= 5 else node
    return node


@given(compositions(), st.sampled_from(SIZES))
def test_views_of_views(view: Node, n: int) -> None:
    assert_shows(view, n)


def test_a_reshape_mixes_only_axes_that_it_splits_or_joins() -> None:
    """What a guard alone keeps within its axis does not reach into others."""
    arena, x = node_of((N, 1, 6, 5))
    view = arena.make(Op.RESHAPE, x, attrs=ShapeAttrs((N, 3, 2, 5, 1)))
    i, j, k = (symbol(name) for name in "ijk")
    beyond = (i, j + 7, k - 9, k + 4, 0)
    assert through_view(view, beyond, {}) == (i, 0, j * 2 + 14 + k - 9, k + 4)


@given(
    st.lists(st.sampled_from([1, 2, 3, N, N * 2]), max_size=4).map(tuple), st.sampled_from(SIZES)
)
def test_flatten_and_unflatten_are_inverse(shape: tuple[Size, ...], n: int) -> None:
    bounds = {f"i{d}": size for d, size in enumerate(shape)}
    coords = tuple(symbol(f"i{d}") if size != 1 else 0 for d, size in enumerate(shape))
    assert unflatten(flatten(coords, shape), shape, bounds) == coords
    total = evaluate(flatten(tuple(size - 1 for size in shape), shape), {"s0": n})
    assert total == int(np.prod([evaluate(size, {"s0": n}) for size in shape])) - 1


def test_an_empty_shape_has_no_coordinates_to_compute() -> None:
    """Nothing divides by the size 0: the kernel that holds it reads no such element."""
    position = symbol("i")
    assert unflatten(position, (0, 4), {"i": 8}) == (0, 0)
    assert unflatten(position, (4, 0), {"i": 8}) == (0, 0)


def test_align_reads_the_only_element_of_an_axis() -> None:
    i, j = symbol("i"), symbol("j")
    assert align((i, j), (1, 4)) == (0, j)
    assert align((i, j), (4,)) == (j,)
    assert align((i, j), ()) == ()


def test_a_view_of_several_operands_has_no_map() -> None:
    arena, x = node_of((4,))
    with pytest.raises(AssertionError, match="pad is no view with one operand"):
        through_view(Node(Op.PAD, (x,), None, x.type, 99), (symbol("i"),), {})
