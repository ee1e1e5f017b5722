"""Graphs whose folds share a walk, and rows that are hard for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.attrs import CastAttrs
from opweld.ir.expr import symbol
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType
from opweld.plan.rows import Parallelism
from opweld.plan.single_pass import in_one_walk

LENGTH, WIDTH = symbol("s1"), symbol("s2")
EVERY_ROW = Parallelism(held_elems=0)
Outputs = tuple[Node, ...]


def softmax(m: Make) -> Outputs:
    return (m.softmax(m.x("x", BATCH, LENGTH * 4), 1),)


def softmax_across(m: Make) -> Outputs:
    return (m.softmax(m.x("x", BATCH, LENGTH, WIDTH * 4), 1),)


def softmax_half(m: Make) -> Outputs:
    wide = m.arena.make(Op.CAST, m.x("x", BATCH, 264, dtype=DType.F16), attrs=CastAttrs(DType.F32))
    return (m.arena.make(Op.CAST, m.softmax(wide, 1), attrs=CastAttrs(DType.F16)),)


def softmax_double(m: Make) -> Outputs:
    return (m.softmax(m.x("x", BATCH, 90, dtype=DType.F64), 1),)


def masked_scores(m: Make) -> Outputs:
    """With a bias and another fold in the same walk."""
    x, bias = m.x("x", BATCH, 520), m.x("bias", 520)
    scores = m.add(m.mul(x, 0.125), bias)
    return m.softmax(scores, 1), m.reduced("amin", x, 1), m.reduced("argmax", x, 1)


def powers(m: Make) -> Outputs:
    """The largest and the sum of the powers; cut."""
    x = m.x("x", BATCH, LENGTH * 4)
    largest = m.reduced("amax", x, 1)
    return largest, m.reduced("sum", m.exp(m.sub(x, largest)), 1)


def powers_across(m: Make) -> Outputs:
    x = m.x("x", BATCH, LENGTH, WIDTH * 4)
    largest = m.reduced("amax", x, 1)
    return largest, m.reduced("sum", m.exp(m.sub(x, largest)), 1)


def finite_powers(m: Make) -> Outputs:
    """logsumexp."""
    x = m.x("x", BATCH, 520)
    largest = m.reduced("amax", x, 1)
    shift = m.where(m.isinf(largest), 0.0, largest)
    return (m.add(m.log(m.reduced("sum", m.exp(m.sub(x, shift)), 1)), shift),)


def squares_of(m: Make, x: Node) -> tuple[Node, Node]:
    count = m.arena.const(x.type.shape[1], x.type.dtype)
    total = m.reduced("sum", x, 1)
    difference = m.sub(x, m.div(total, count))
    return total, m.reduced("sum", m.mul(difference, difference), 1)


def moments(m: Make) -> Outputs:
    return squares_of(m, m.x("x", BATCH, LENGTH * 4))


def moments_across(m: Make) -> Outputs:
    return squares_of(m, m.x("x", BATCH, LENGTH, WIDTH * 4))


def moments_double(m: Make) -> Outputs:
    return squares_of(m, m.x("x", BATCH, 90, dtype=DType.F64))


def layer_norm(m: Make) -> Outputs:
    x, weight = m.x("x", BATCH, 3, 88), m.x("weight", 3, 88)
    return (m.mul(m.standardised(x, 1, 2), weight),)


UNCUT = (softmax, softmax_across, softmax_half, softmax_double, masked_scores, layer_norm)
CUT = (powers, powers_across, finite_powers, moments, moments_across, moments_double)


def outputs_of(make: Callable[[Make], Outputs]) -> Outputs:
    """The graph's outputs with folds in one walk, however short the rows."""
    return in_one_walk(graph(*make(Make())), EVERY_ROW).outputs


def values(*shape: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def sizes_of(x: np.ndarray) -> dict[str, int]:
    """For x[s0, 4 * s1] and x[s0, s1, 4 * s2]; what is fixed in a graph asks for nothing."""
    *outer, inner = x.shape
    return dict(zip(("s0", "s1", "s2"), [*outer, inner // 4], strict=False))


def hard_rows(length: int = 520) -> np.ndarray:
    """Infinities and NaN at the ends and in the middle, rows of nothing else, and far values."""
    x = values(14, length)
    x[0], x[1] = -np.inf, np.inf
    x[2, 0], x[3, -1], x[4, 300 % length] = np.inf, np.inf, -np.inf
    x[5, :-1] = -np.inf
    x[6, 1:] = -np.inf
    x[7, length // 2] = np.nan
    x[8] = np.nan
    x[9, ::2], x[9, 1::2] = 3e38, -3e38
    x[10] *= 50
    x[11] = 0
    x[12, 4:] = -1e30
    x[13, : length // 2] = -np.inf
    return x
