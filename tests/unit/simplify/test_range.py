"""Ranges are true of what NumPy computes on hard values, and as narrow as rules need."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.rules.hard_values import hard_operands
from tests.unit.ir.graphs import BATCH, graph, tensor

from opweld.ir.attrs import NO_ATTRS, CastAttrs, NanToNumAttrs, ReduceAttrs
from opweld.ir.graph import Arena
from opweld.ir.numpy.interpret import interpret
from opweld.ir.ops import OPS, Kind, Op
from opweld.ir.types import DType, TensorType
from opweld.simplify.range import ANYTHING, Range, range_of

PLAIN = [
    op
    for op, row in OPS.items()
    if row.kind is Kind.POINTWISE and row.attrs is type(NO_ATTRS) and op is not Op.WHERE
]
BELOW = (None, Op.TANH, Op.EXP, Op.ABS, Op.SIGMOID)


def holds(found: Range, values: np.ndarray) -> bool:
    known = values[~np.isnan(values)]
    zeros = known[known == 0]
    return (
        (found.nan or len(known) == len(values))
        and bool(np.all((known >= found.low) & (known <= found.high)))
        and (found.may_be_negative_zero or not np.signbit(zeros).any())
    )


@pytest.mark.parametrize("op", PLAIN, ids=lambda op: op.value)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16, DType.I32, DType.U8])
def test_ranges_hold(op, dtype):
    for below in BELOW if dtype.is_float else (None,):
        arena = Arena()
        names = ["x", "y", "z"][: OPS[op].arity]
        operands = [tensor(arena, name, BATCH, dtype=dtype) for name in names]
        if below is not None:
            operands = [arena.make(below, operand) for operand in operands]
        node = arena.make(op, *operands)
        feeds = dict(zip(names, hard_operands(len(names), dtype), strict=True))
        try:
            values = interpret(graph(node), feeds)
        except TypeError:
            continue  # a row for floats, or for integers
        assert holds(range_of(node), values.astype(np.float64)), (below, range_of(node))


@pytest.mark.parametrize("value", [0.1, -3.0, 0.0, -0.0, 1e30, math.inf])
@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.CLAMP_MIN, Op.CLAMP_MAX])
def test_ranges_with_a_constant_hold(op, value):
    for below in (Op.TANH, Op.EXP, Op.SIGMOID):
        arena = Arena()
        x = arena.make(below, tensor(arena, "x", BATCH))
        node = arena.make(op, x, arena.const(value, DType.F32))
        values = interpret(graph(node), {"x": hard_operands(1, DType.F32)[0]})
        assert holds(range_of(node), values), (below, range_of(node))


def test_bounds_are_rounded_as_kernels_round():
    arena = Arena()
    x = arena.make(Op.SIGMOID, tensor(arena, "x", 4))
    tenth = arena.const(0.1, DType.F32)
    total = arena.make(Op.ADD, arena.make(Op.MUL, x, tenth), arena.const(0.2, DType.F32))
    assert range_of(total).low == float(np.float32(0.2))
    assert range_of(total).high == float(np.float32(0.1) + np.float32(0.2)) > 0.1 + 0.2


def test_casts_round_their_bounds():
    arena = Arena()
    x = arena.make(Op.MUL, arena.make(Op.TANH, tensor(arena, "x", 4)), arena.const(0.3, DType.F32))
    narrow = arena.make(Op.CAST, x, attrs=CastAttrs(DType.BF16))
    assert range_of(narrow).high == 0.30078125
    flag = arena.make(Op.CAST, arena.make(Op.ISNAN, x), attrs=CastAttrs(DType.F16))
    assert range_of(flag) == Range(0.0, 1.0)


def test_nan_to_num_is_finite():
    arena = Arena()
    x = tensor(arena, "x", 4)
    node = arena.make(Op.NAN_TO_NUM, x, attrs=NanToNumAttrs(0.0, 5.0, -3.4e38))
    assert range_of(node).is_finite
    assert not range_of(x).is_finite


def test_far_away_is_unknown():
    arena = Arena()
    node = arena.make(Op.TANH, tensor(arena, "x", 4))
    for _ in range(3):
        node = arena.make(Op.FLOOR, node)
    assert range_of(node, depth=4).high == 1
    assert range_of(node, depth=3) == ANYTHING


def reduced(op, x, arena):
    return arena.make(op, x, attrs=ReduceAttrs((1,)))


def test_reductions_of_what_is_not_negative():
    arena = Arena()
    x = arena.source(Op.INPUT, "x", "x", TensorType(DType.F32, (3, 5)))
    squares = arena.make(Op.MUL, x, x)
    for op in (Op.SUM, Op.MEAN):
        found = range_of(reduced(op, squares, arena))
        assert (found.low, found.high, found.nan) == (0.0, np.inf, True)
        assert range_of(reduced(op, x, arena)).low == -np.inf
    tanh = arena.make(Op.TANH, x)
    assert range_of(reduced(Op.SUM, tanh, arena)).low == -np.inf
    for op in (Op.AMAX, Op.AMIN):
        found = range_of(reduced(op, tanh, arena))
        assert (found.low, found.high) == (-1, 1)


def test_a_softmax_is_bounded():
    arena = Arena()
    x = arena.source(Op.INPUT, "x", "x", TensorType(DType.F32, (3, 5)))
    powers = arena.make(Op.EXP, arena.make(Op.SUB, x, reduced(Op.AMAX, x, arena)))
    softmax = arena.make(Op.DIV, powers, reduced(Op.SUM, powers, arena))
    found = range_of(softmax)
    assert found.is_within(2.0) and not found.is_within(1.0) and found.nan and found.low == 0
    by_another = arena.make(Op.DIV, powers, reduced(Op.SUM, x, arena))
    of_any_sign = arena.make(Op.DIV, x, reduced(Op.SUM, x, arena))
    assert not range_of(by_another).is_within(2.0)
    assert not range_of(of_any_sign).is_within(2.0)
