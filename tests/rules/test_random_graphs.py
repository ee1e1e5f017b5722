"""Random small graphs mean the same after simplification, values and derivatives."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.rules.hard_values import hard_values
from tests.rules.torch_ops import run_torch
from tests.unit.ir.graphs import graph, tensor

from opweld.ir.attrs import CastAttrs, PermuteAttrs, ShapeAttrs, SliceAttrs
from opweld.ir.check import check
from opweld.ir.graph import Arena, Graph, Node
from opweld.ir.numpy.interpret import interpret
from opweld.ir.ops import OPS, Op
from opweld.ir.rules.rewrite import Numerics
from opweld.ir.text import to_text
from opweld.ir.types import DType
from opweld.simplify import simplify
from opweld.simplify.rules import RULES

UNARY = (
    Op.NEG, Op.ABS, Op.RELU, Op.TANH, Op.SIGMOID, Op.EXP, Op.SQRT, Op.FLOOR, Op.SIGN,
)  # fmt: skip
BINARY = (
    Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAXIMUM, Op.MINIMUM, Op.CLAMP_MIN, Op.CLAMP_MAX, Op.POW,
)  # fmt: skip
CONSTANTS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -4.0, 0.1)
SHAPE = (4, 5)


@st.composite
def graphs(draw, dtype: DType = DType.F32) -> tuple[Graph, Arena]:
    """One or two outputs over up to twelve operations, views among them, on a 4 by 5 input."""
    arena = Arena()
    values = [tensor(arena, "x", *SHAPE, dtype=dtype), tensor(arena, "y", 5, dtype=dtype)]
    for _ in range(draw(st.integers(1, 12))):
        values.append(_draw_node(draw, arena, values, dtype))
    last = values[-1], draw(st.sampled_from(values[2:]))
    return graph(*dict.fromkeys(last)), arena


def _draw_node(draw, arena: Arena, values: list[Node], dtype: DType) -> Node:
    x = draw(st.sampled_from(values))
    kind = draw(st.sampled_from(("unary", "constant", "constant", "binary", "view", "cast")))
    if kind == "unary":
        return arena.make(draw(st.sampled_from(UNARY)), x)
    if kind == "constant":
        constant = arena.const(draw(st.sampled_from(CONSTANTS)), dtype)
        op = draw(st.sampled_from(BINARY))
        swap = OPS[op].commutative and draw(st.booleans())
        return arena.make(op, *((constant, x) if swap else (x, constant)))
    if kind == "binary":
        y = draw(st.sampled_from(values))
        fits = y.type.shape == x.type.shape or y.type.shape == x.type.shape[-1:]
        return arena.make(draw(st.sampled_from(BINARY[:-1])), x, y if fits else x)
    if kind == "cast":
        wide = arena.make(Op.CAST, x, attrs=CastAttrs(DType.F64))
        return arena.make(Op.CAST, wide, attrs=CastAttrs(dtype))
    return _draw_view(draw, arena, x)


def _draw_view(draw, arena: Arena, x: Node) -> Node:
    shape = x.type.shape
    if len(shape) == 2 and draw(st.booleans()):
        return arena.make(Op.PERMUTE, x, attrs=PermuteAttrs((1, 0)))
    if draw(st.booleans()):
        return arena.make(Op.RESHAPE, x, attrs=ShapeAttrs((x.type.num_elems,)))
    start = draw(st.integers(0, 1))
    length = draw(st.integers(1, shape[0] - start)) if shape[0] > start else shape[0]
    start = start if shape[0] > start else 0
    return arena.make(Op.SLICE, x, attrs=SliceAttrs(0, start, 1, length))


def feeds(seed: int, dtype: DType) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    pool = np.concatenate([hard_values(dtype), rng.normal(size=20).astype(np.float32)])
    pick = {"x": rng.choice(pool, SHAPE), "y": rng.choice(pool, 5)}
    return {name: values.astype(hard_values(dtype).dtype) for name, values in pick.items()}


EXACT_RULES = frozenset(rule.name for rule in RULES if rule.numerics is Numerics.EXACT)
relaxed = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def same_bits(before: np.ndarray, after: np.ndarray) -> bool:
    return np.array_equal(before, after, equal_nan=True) and np.array_equal(
        np.signbit(before[before == before]), np.signbit(after[after == after])
    )


@relaxed
@given(graphs(), st.integers(0, 1000))
def test_exact_rules_change_no_bit(drawn, seed):
    before, arena = drawn
    result = simplify(before, arena, EXACT_RULES)
    check(result.graph)
    feed = feeds(seed, DType.F32)
    both = [interpret(g, feed) for g in (before, result.graph)]
    pairs = zip(*(b if isinstance(b, tuple) else (b,) for b in both), strict=True)
    assert all(same_bits(*pair) for pair in pairs), to_text(before) + to_text(result.graph)


@relaxed
@given(graphs(DType.F64), st.integers(0, 1000))
def test_all_rules_keep_ordinary_values_and_derivatives(drawn, seed):
    before, arena = drawn
    after = simplify(before, arena).graph
    rng = np.random.default_rng(seed)
    feed = {"x": rng.uniform(0.5, 2, SHAPE), "y": rng.uniform(0.5, 2, 5)}
    for expected, got in zip(
        *(values_and_gradients(g, feed) for g in (before, after)), strict=True
    ):
        finite = np.isfinite(expected)
        assert np.allclose(expected[finite], got[finite], rtol=1e-9, atol=1e-12), to_text(
            before
        ) + to_text(after)


def values_and_gradients(g: Graph, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    leaves = {name: torch.from_numpy(v).requires_grad_() for name, v in feed.items()}
    outputs = run_torch(g, leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    total = sum((output * 1.25).sum() for output in outputs)
    if not total.requires_grad:
        return [output.detach().numpy() for output in outputs]
    given = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    zeros = (np.zeros_like(v) for v in feed.values())
    gradients = [z if d is None else d.numpy() for d, z in zip(given, zeros, strict=True)]
    return [*(output.detach().numpy() for output in outputs), *gradients]


@relaxed
@given(graphs())
def test_simplified_graphs_are_simple(drawn):
    """A second run leaves the graph as it is."""
    before, arena = drawn
    once = simplify(before, arena).graph
    assert to_text(simplify(once, arena).graph) == to_text(once)
