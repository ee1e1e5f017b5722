"""Graphs that are one group of scans each, and hard operands for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from tests.unit.plan.plans import BATCH, Make

from opweld.ir.attrs import CastAttrs
from opweld.ir.expr import symbol
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType

LENGTH, WIDTH = symbol("s1"), symbol("s2")
Outputs = tuple[Node, ...]
Graphs = dict[str, Callable[[Make], Outputs]]
EXTREMES = ("cummax", "cummax_place", "cummin", "cummin_place")


def sums(m: Make, **ways: bool) -> Outputs:
    """With a prologue that is needed after the scan, too, and an operand for that alone."""
    x, y = m.x("x", BATCH, LENGTH * 4), m.x("y", BATCH, LENGTH * 4)
    masked = m.mul(x, y)
    return m.sub(m.scanned("cumsum", masked, 1, **ways), m.mul(masked, 0.5)), m.exp(y)


def odd(m: Make, **ways: bool) -> Outputs:
    """Of any length: packets where a launch finds whole ones."""
    return (m.mul(m.scanned("cumsum", m.x("x", BATCH, LENGTH), 1, **ways), 2.0),)


def across(m: Make, **ways: bool) -> Outputs:
    x = m.x("x", BATCH, LENGTH, WIDTH * 4)
    return (m.add(m.scanned("cumsum", x, 1, **ways), m.x("row", WIDTH * 4)),)


def products(m: Make, **ways: bool) -> Outputs:
    x = m.x("x", BATCH, LENGTH * 4)
    return (m.scanned("cumprod", x, 1, **ways),)


def powers(m: Make, **ways: bool) -> Outputs:
    return (m.scanned("logcumsumexp", m.x("x", BATCH, LENGTH * 4), 1, **ways),)


def powers_across(m: Make) -> Outputs:
    return (m.scanned("logcumsumexp", m.x("x", BATCH, LENGTH, WIDTH * 4), 1),)


def extremes(m: Make) -> Outputs:
    x = m.x("x", BATCH, LENGTH * 4)
    return tuple(m.scanned(op, x, 1) for op in EXTREMES)


def extremes_across(m: Make) -> Outputs:
    x = m.x("x", BATCH, LENGTH, WIDTH * 4)
    return tuple(m.scanned(op, x, 1) for op in EXTREMES)


def largest_from_the_end(m: Make) -> Outputs:
    return (m.scanned("cummax", m.x("x", BATCH, LENGTH * 4), 1, reverse=True),)


def integers(m: Make) -> Outputs:
    x = m.x("x", BATCH, LENGTH * 4, dtype=DType.I64)
    return tuple(m.scanned(op, x, 1) for op in ("cumsum", "cumprod", *EXTREMES[1:3]))


def doubles(m: Make) -> Outputs:
    return (m.scanned("cumsum", m.x("x", BATCH, LENGTH * 4, dtype=DType.F64), 1),)


def half(m: Make, **ways: bool) -> Outputs:
    x = m.arena.make(Op.CAST, m.x("x", BATCH, LENGTH * 8, dtype=DType.F16), attrs=F32)
    scanned = m.scanned("cumsum", x, 1, **ways)
    return (m.arena.make(Op.CAST, scanned, attrs=CastAttrs(DType.F16)),)


def half_across(m: Make) -> Outputs:
    x = m.arena.make(Op.CAST, m.x("x", BATCH, LENGTH, WIDTH * 8, dtype=DType.BF16), attrs=F32)
    return (m.arena.make(Op.CAST, m.scanned("cumsum", x, 1), attrs=CastAttrs(DType.BF16)),)


def behind_nothing(m: Make) -> Outputs:
    """Operands under conditions: a row of zeros, and then others, of one more element."""
    zeros = m.expand(m.const(0.0), BATCH, 1)
    return (m.scanned("cumsum", m.cat(1, zeros, m.x("x", BATCH, LENGTH)), 1),)


def of_a_transpose(m: Make) -> Outputs:
    return (m.scanned("cumsum", m.permute(m.x("x", LENGTH * 4, BATCH), 1, 0), 1),)


F32 = CastAttrs(DType.F32)
REVERSE, EXCLUSIVE = {"reverse": True}, {"exclusive": True}
WAYS = {"": {}, "_reverse": REVERSE, "_exclusive": EXCLUSIVE, "_both": REVERSE | EXCLUSIVE}
SUMS: Graphs = {
    f"{make.__name__}{name}": partial(make, **ways)
    for make in (sums, odd, across)
    for name, ways in WAYS.items()
}
OTHERS: Graphs = {
    "products": products,
    "products_both": partial(products, **WAYS["_both"]),
    "powers": powers,
    "powers_reverse": partial(powers, reverse=True),
    "powers_across": powers_across,
    "extremes": extremes,
    "extremes_across": extremes_across,
    "largest_from_the_end": largest_from_the_end,
    "integers": integers,
    "doubles": doubles,
    "half": half,
    "half_reverse": partial(half, reverse=True),
    "half_across": half_across,
    "behind_nothing": behind_nothing,
    "of_a_transpose": of_a_transpose,
}
GRAPHS: Graphs = {**SUMS, **OTHERS}


def values(*shape: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype is np.int64:
        return rng.integers(-(2**62), 2**62, shape)
    return rng.standard_normal(shape).astype(dtype)


def hard_rows(rows: int, *shape: int) -> np.ndarray:
    """Rows of few different numbers, of infinities, zeros of both signs, NaN, and subnormals."""
    rng = np.random.default_rng(2)
    x = rng.choice(np.float32([1, 2, 3]), (rows, *shape))
    x[rng.random(x.shape) > 0.97] = np.nan
    x[0], x[1 % rows] = -np.inf, np.inf
    x[2 % rows] = rng.choice(np.float32([np.inf, -np.inf, 0.0, -0.0, 1.0, np.nan]), shape)
    x[3 % rows] = rng.choice(np.float32([0.0, -0.0]), shape)
    x[4 % rows] = rng.choice(np.float32([1e-45, -1e-45, 1e-40]), shape)
    return x
