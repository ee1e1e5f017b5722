"""Comparisons, logic, bits and choice: one row per operator."""

from __future__ import annotations

from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType

from ..call import Call, Lower, NotFused


def _comparison(op: Op) -> Lower:
    def lower(call: Call) -> Node:
        dtype = call.common_dtype("self", "other")
        if dtype is DType.BOOL and op not in (Op.EQ, Op.NE):
            dtype = DType.U8
        left = call.operand("self", dtype, rounded=True)
        return call.make(op, left, call.operand("other", dtype, rounded=True))

    return lower


def _logical(op: Op) -> Lower:
    def lower(call: Call) -> Node:
        left = call.operand("self", DType.BOOL)
        return call.make(op, left, call.operand("other", DType.BOOL))

    return lower


def _logical_not(call: Call) -> Node:
    return call.make(Op.LOGICAL_NOT, call.operand("self", DType.BOOL))


def _bitwise(op: Op, on_bool: Op) -> Lower:
    def lower(call: Call) -> Node:
        chosen = on_bool if call.dtype is DType.BOOL else op
        return call.make(chosen, call.operand("self"), call.operand("other"))

    return lower


def _bitwise_not(call: Call) -> Node:
    chosen = Op.LOGICAL_NOT if call.dtype is DType.BOOL else Op.BITWISE_NOT
    return call.make(chosen, call.operand("self"))


def _shift(op: Op) -> Lower:
    def lower(call: Call) -> Node:
        bits = call.dtype.itemsize_bytes * 8
        amount = call.values["other"]
        if not isinstance(amount, int) or not 0 <= amount < bits:
            raise NotFused("a shift by an amount outside the type's width is left to the library")
        return call.make(op, call.operand("self"), call.operand("other"))

    return lower


def _where(call: Call) -> Node:
    condition = call.operand("condition", DType.BOOL)
    return call.make(Op.WHERE, condition, call.operand("self"), call.operand("other"))


def _masked_fill(call: Call) -> Node:
    mask = call.operand("mask", DType.BOOL)
    filled = call.make(Op.WHERE, mask, call.operand("value"), call.operand("self"))
    return call.build.expand(filled, call.shape)


def _isclose(call: Call) -> Node:
    """|self - other| <= atol + |rtol * other|, or equal."""
    x, y = call.node("self"), call.node("other")
    dtype = x.type.dtype
    if not dtype.is_float or y.type.dtype is not dtype:
        raise NotFused("isclose of integers is left to the library")
    equal = call.make(Op.EQ, x, y)
    if call.values["equal_nan"]:
        both = call.make(Op.LOGICAL_AND, call.make(Op.ISNAN, x), call.make(Op.ISNAN, y))
        equal = call.make(Op.LOGICAL_OR, equal, both)
    rtol, atol = (call.operand(name, dtype) for name in ("rtol", "atol"))
    allowed = call.make(Op.ADD, atol, call.make(Op.ABS, call.make(Op.MUL, rtol, y)))
    actual = call.make(Op.ABS, call.make(Op.SUB, x, y))
    near = call.make(Op.LE, actual, allowed)
    finite = call.make(Op.LOGICAL_AND, call.make(Op.ISFINITE, actual), near)
    return call.make(Op.LOGICAL_OR, equal, finite)


LOGIC: dict[str, Lower] = {
    "logical_not": _logical_not,
    "logical_and": _logical(Op.LOGICAL_AND),
    "logical_or": _logical(Op.LOGICAL_OR),
    "logical_xor": _logical(Op.LOGICAL_XOR),
    "bitwise_not": _bitwise_not,
    "bitwise_and": _bitwise(Op.BITWISE_AND, Op.LOGICAL_AND),
    "bitwise_or": _bitwise(Op.BITWISE_OR, Op.LOGICAL_OR),
    "bitwise_xor": _bitwise(Op.BITWISE_XOR, Op.LOGICAL_XOR),
    "__and__": _bitwise(Op.BITWISE_AND, Op.LOGICAL_AND),
    "__or__": _bitwise(Op.BITWISE_OR, Op.LOGICAL_OR),
    "__xor__": _bitwise(Op.BITWISE_XOR, Op.LOGICAL_XOR),
    "bitwise_left_shift": _shift(Op.SHIFT_LEFT),
    "bitwise_right_shift": _shift(Op.SHIFT_RIGHT),
    "__lshift__": _shift(Op.SHIFT_LEFT),
    "__rshift__": _shift(Op.SHIFT_RIGHT),
    "eq": _comparison(Op.EQ),
    "ne": _comparison(Op.NE),
    "not_equal": _comparison(Op.NE),
    "lt": _comparison(Op.LT),
    "less": _comparison(Op.LT),
    "le": _comparison(Op.LE),
    "less_equal": _comparison(Op.LE),
    "gt": _comparison(Op.GT),
    "greater": _comparison(Op.GT),
    "ge": _comparison(Op.GE),
    "greater_equal": _comparison(Op.GE),
    "isclose": _isclose,
    "where": _where,
    "masked_fill": _masked_fill,
}
