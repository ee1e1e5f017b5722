"""ATen's pointwise operators in our operations: one row per operator, all its overloads.

Operands are cast to the type that eager promotes them to.
"""

from __future__ import annotations

import math

import torch

from opweld.ir.attrs import NanToNumAttrs
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType

from ..call import Call, Lower, NotFused
from ..dtypes import largest
from .activations import ACTIVATIONS
from .arithmetic import ARITHMETIC
from .logic import LOGIC
from .rows import float_only, predicate, rounding, unary


def _sign(call: Call) -> Node:
    operand = call.operand("self")
    return operand if call.dtype is DType.BOOL else call.make(Op.SIGN, operand)


def _signbit(call: Call) -> Node:
    operand = call.node("self")
    dtype = operand.type.dtype
    if dtype.is_float:
        return call.make(Op.SIGNBIT, operand)
    if dtype is DType.BOOL:
        return call.build.expand(call.const(False, DType.BOOL), operand.type.shape)
    return call.make(Op.LT, operand, call.const(0, dtype))


def _nan_to_num(call: Call) -> Node:
    if not call.dtype.is_float:
        for name in ("nan", "posinf", "neginf"):
            call.values.get(name)  # no integer is one of them
        return call.operand("self")
    defaults = {"nan": 0.0, "posinf": largest(call.dtype), "neginf": -largest(call.dtype)}
    given = {name: call.values.get(name) for name in defaults}
    chosen = {n: float(defaults[n] if v is None else v) for n, v in given.items()}
    return call.make(Op.NAN_TO_NUM, call.operand("self"), attrs=NanToNumAttrs(**chosen))


def _infinite(value: float) -> Lower:
    """isposinf and isneginf: equality with the infinity; no integer is one."""

    def lower(call: Call) -> Node:
        x = call.node("self")
        if not x.type.dtype.is_float:
            return call.build.expand(call.const(False, DType.BOOL), x.type.shape)
        return call.make(Op.EQ, x, call.const(value, x.type.dtype))

    return lower


def _angle(call: Call) -> Node:
    """pi for negative numbers, 0 for others, NaN for NaN."""
    x = call.operand("self")
    sided = call.make(Op.WHERE, _less(call, x, 0.0), call.const(math.pi), call.const(0.0))
    return call.make(Op.WHERE, call.make(Op.ISNAN, x), x, sided)


def _less(call: Call, x: Node, limit: float) -> Node:
    return call.make(Op.LT, x, call.const(limit))


def _sinc(call: Call) -> Node:
    x = call.operand("self")
    is_zero = call.make(Op.EQ, x, call.const(0.0))
    # Not x itself, for the gradient of 0 / 0 is NaN even where it is not taken.
    elsewhere = call.make(Op.WHERE, is_zero, call.const(1.0), x)
    angle = call.make(Op.MUL, call.const(math.pi), elsewhere)
    ratio = call.make(Op.DIV, call.make(Op.SIN, angle), angle)
    return call.make(Op.WHERE, is_zero, call.const(1.0), ratio)


def _times(factor: float) -> Lower:
    return lambda call: call.make(Op.MUL, call.operand("self"), call.const(factor))


def _logit(call: Call) -> Node:
    x = call.operand("self")
    if call.values.get("eps") is not None:
        eps = call.number("eps")
        x = call.make(Op.CLAMP_MIN, x, call.const(eps))
        x = call.make(Op.CLAMP_MAX, x, call.const(1 - eps))
    odds = call.make(Op.DIV, x, call.make(Op.SUB, call.const(1.0), x))
    return call.make(Op.LOG, odds)


def _to_copy(call: Call) -> Node:
    kept = ("layout", "pin_memory")
    if any(call.values.get(name) not in (None, False) for name in kept):
        raise NotFused("a change of layout is left to the library")
    dtype = call.fakes.get("dtype")
    node = _same_order(call)
    return node if dtype is None else call.build.cast(node, call.dtype)


def _type_as(call: Call) -> Node:
    return call.build.cast(call.node("self"), call.node("other").type.dtype)


def _same_order(call: Call) -> Node:
    """The tensor itself: kernels take any order in memory, convolutions do not."""
    if call.fakes.get("memory_format") in (torch.channels_last, torch.channels_last_3d):
        raise NotFused("a change of layout is left to the library")
    call.values.get("memory_format")
    return call.node("self")


def _identity(call: Call) -> Node:
    return call.node("self")


def _positive(call: Call) -> Node:
    return call.operand("self")


def _square(call: Call) -> Node:
    return call.make(Op.MUL, call.operand("self"), call.operand("self"))


FUNCTIONS: dict[str, Lower] = {
    "abs": unary(Op.ABS),
    "absolute": unary(Op.ABS),
    "neg": unary(Op.NEG),
    "negative": unary(Op.NEG),
    "positive": _positive,
    "sign": _sign,
    "sgn": _sign,
    "angle": _angle,
    "isposinf": _infinite(math.inf),
    "isneginf": _infinite(-math.inf),
    "sinc": _sinc,
    "special_sinc": _sinc,
    "signbit": _signbit,
    "reciprocal": unary(Op.RECIPROCAL),
    "sqrt": unary(Op.SQRT),
    "rsqrt": unary(Op.RSQRT),
    "square": _square,
    "exp": unary(Op.EXP),
    "exp2": unary(Op.EXP2),
    "expm1": unary(Op.EXPM1),
    "log": unary(Op.LOG),
    "log2": unary(Op.LOG2),
    "log10": unary(Op.LOG10),
    "log1p": unary(Op.LOG1P),
    "sin": unary(Op.SIN),
    "cos": unary(Op.COS),
    "tan": unary(Op.TAN),
    "asin": unary(Op.ASIN),
    "arcsin": unary(Op.ASIN),
    "acos": unary(Op.ACOS),
    "arccos": unary(Op.ACOS),
    "atan": unary(Op.ATAN),
    "arctan": unary(Op.ATAN),
    "sinh": unary(Op.SINH),
    "cosh": unary(Op.COSH),
    "tanh": unary(Op.TANH),
    "asinh": unary(Op.ASINH),
    "arcsinh": unary(Op.ASINH),
    "acosh": unary(Op.ACOSH),
    "arccosh": unary(Op.ACOSH),
    "atanh": unary(Op.ATANH),
    "arctanh": unary(Op.ATANH),
    "erf": unary(Op.ERF),
    "special_erf": unary(Op.ERF),
    "erfc": unary(Op.ERFC),
    "special_erfc": unary(Op.ERFC),
    "logit": _logit,
    "special_logit": _logit,
    "deg2rad": _times(math.pi / 180.0),
    "rad2deg": _times(180.0 / math.pi),
    "floor": rounding(Op.FLOOR),
    "ceil": rounding(Op.CEIL),
    "round": rounding(Op.ROUND),
    "trunc": rounding(Op.TRUNC),
    "fix": rounding(Op.TRUNC),
    "frac": float_only(Op.FRAC),
    "isnan": predicate(Op.ISNAN, of_integers=False),
    "isinf": predicate(Op.ISINF, of_integers=False),
    "isfinite": predicate(Op.ISFINITE, of_integers=True),
    "nan_to_num": _nan_to_num,
    "_to_copy": _to_copy,
    "type_as": _type_as,
    "clone": _same_order,
    "contiguous": _same_order,
    "alias": _identity,
    "lift_fresh": _identity,
    "lift_fresh_copy": _identity,
}
POINTWISE: dict[str, Lower] = {**ARITHMETIC, **LOGIC, **ACTIVATIONS, **FUNCTIONS}
