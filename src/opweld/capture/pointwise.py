"""ATen's pointwise operators in our operations: one row per operator, all its overloads.

Operands are cast to the type that eager promotes them to. A composition keeps eager's own order of
operations (ATen/native/cpu/PointwiseOpsKernel.cpp, BinaryOps.cpp, UnaryOps.cpp, Activation.cpp).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from opweld.ir.graph import Node
from opweld.ir.ops import (
    EluAttrs,
    LambdaAttrs,
    NanToNumAttrs,
    Op,
    SlopeAttrs,
    SoftplusAttrs,
    ThresholdAttrs,
)
from opweld.ir.types import DType

from .call import Call, Lower, NotWelded
from .dtypes import FROM_TORCH, largest, round_to

# Largest exponent of an integer power that becomes products.
_MAX_INTEGER_POWER = 16


def _unary(op: Op) -> Lower:
    return lambda call: call.make(op, call.operand("self"))


def _float_only(op: Op) -> Lower:
    """Operations that eager does not have for integers, or that mean nothing there."""

    def lower(call: Call) -> Node:
        if not call.dtype.is_float:
            raise NotWelded(f"{call.name} of integers is left to the library")
        return call.make(op, call.operand("self"))

    return lower


def _rounding(op: Op) -> Lower:
    """Rounding an integer is the integer."""

    def lower(call: Call) -> Node:
        operand = call.operand("self")
        return call.make(op, operand) if call.dtype.is_float else operand

    return lower


def _test(op: Op, of_integers: bool) -> Lower:
    """A predicate of floats that has one answer for all integers."""

    def lower(call: Call) -> Node:
        operand = call.node("self")
        if operand.type.dtype.is_float:
            return call.make(op, operand)
        return call.build.expand(call.const(of_integers, DType.BOOL), operand.type.shape)

    return lower


def _binary(op: Op, on_bool: Op | None = None) -> Callable[[Call], Node]:
    def lower(call: Call) -> Node:
        chosen = op
        if call.dtype is DType.BOOL:
            if on_bool is None:
                raise NotWelded(f"{call.name} of bools is left to the library")
            chosen = on_bool
        return call.make(chosen, call.operand("self"), call.operand("other"))

    return lower


def _float_binary(op: Op) -> Lower:
    def lower(call: Call) -> Node:
        if not call.dtype.is_float:
            raise NotWelded(f"{call.name} of integers is left to the library")
        return call.make(op, call.operand("self"), call.operand("other"))

    return lower


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
            raise NotWelded("a shift by an amount outside the type's width is left to the library")
        return call.make(op, call.operand("self"), call.operand("other"))

    return lower


def _scaled(call: Call, name: str, factor: str) -> Node:
    """factor * operand, where a factor of 1 is left out as eager leaves it out."""
    operand = call.operand(name)
    if call.is_number(factor) and call.number(factor) == 1:
        return operand
    return call.make(Op.MUL, call.operand(factor), operand)


def _add(call: Call) -> Node:
    if call.dtype is DType.BOOL:
        return call.make(Op.LOGICAL_OR, call.operand("self"), call.operand("other"))
    return call.make(Op.ADD, call.operand("self"), _scaled(call, "other", "alpha"))


def _sub(call: Call) -> Node:
    return call.make(Op.SUB, call.operand("self"), _scaled(call, "other", "alpha"))


def _rsub(call: Call) -> Node:
    return call.make(Op.SUB, call.operand("other"), _scaled(call, "self", "alpha"))


def _div(call: Call) -> Node:
    mode = call.values.get("rounding_mode")
    if mode is None:
        return call.make(Op.DIV, call.operand("self"), call.operand("other"))
    op = {"floor": Op.DIV_FLOOR, "trunc": Op.DIV_TRUNC}[mode]
    return _integer_safe(call, op)


def _integer_safe(call: Call, op: Op) -> Node:
    """Integer division traps on 0 and on minimum / -1, which eager reports as an error."""
    divisor = call.values["other"]
    if not call.dtype.is_float and (not isinstance(divisor, int) or divisor in (0, -1)):
        raise NotWelded("an integer division that may be by zero is left to the library")
    return call.make(op, call.operand("self"), call.operand("other"))


def _dividing(op: Op) -> Lower:
    return lambda call: _integer_safe(call, op)


def _pow(call: Call) -> Node:
    exponent = call.values["exponent"]
    if not call.dtype.is_float:
        return _integer_pow(call, exponent)
    # Eager's own special cases (PowKernel.cpp): they differ from pow() at -inf.
    if isinstance(exponent, float) and exponent == 0.5:
        return call.make(Op.SQRT, call.operand("self"))
    if isinstance(exponent, float) and exponent == -0.5:
        return call.make(Op.RSQRT, call.operand("self"))
    return call.make(Op.POW, call.operand("self"), call.operand("exponent"))


def _integer_pow(call: Call, exponent: Any) -> Node:
    if not isinstance(exponent, int) or not 0 <= exponent <= _MAX_INTEGER_POWER:
        raise NotWelded("an integer power with a large or variable exponent is left to the library")
    power = call.operand("self")
    if exponent == 0:
        return call.build.expand(call.const(1), call.shape)
    base = power
    for _ in range(exponent - 1):
        power = call.make(Op.MUL, power, base)
    return power


def _square(call: Call) -> Node:
    return call.make(Op.MUL, call.operand("self"), call.operand("self"))


def _clamp(call: Call) -> Node:
    result = call.operand("self")
    if call.values.get("min") is not None:
        result = call.make(Op.CLAMP_MIN, result, call.operand("min", rounded=True))
    if call.values.get("max") is not None:
        result = call.make(Op.CLAMP_MAX, result, call.operand("max", rounded=True))
    return call.build.expand(result, call.shape)


def _between(call: Call, low: Any, high: Any) -> Node:
    dtype = call.dtype
    raised = call.make(Op.CLAMP_MIN, call.operand("self"), call.const(round_to(low, dtype)))
    return call.make(Op.CLAMP_MAX, raised, call.const(round_to(high, dtype)))


def _hardtanh(call: Call) -> Node:
    return _between(call, call.number("min_val"), call.number("max_val"))


def _relu6(call: Call) -> Node:
    return _between(call, 0.0, 6.0)


def _reduction_or_binary(op: Op, on_bool: Op) -> Lower:
    """max(self, other) is pointwise; max(self) and max(self, dim) are reductions."""

    def lower(call: Call) -> Node:
        if call.overload != "other":
            raise NotWelded("a reduction is left to the library")
        return _binary(op, on_bool)(call)

    return lower


def _addcmul(call: Call) -> Node:
    scaled = _scaled(call, "tensor1", "value")
    product = call.make(Op.MUL, scaled, call.operand("tensor2"))
    return call.make(Op.ADD, call.operand("self"), product)


def _addcdiv(call: Call) -> Node:
    if not call.dtype.is_float:
        raise NotWelded("addcdiv of integers is left to the library")
    scaled = _scaled(call, "tensor1", "value")
    quotient = call.make(Op.DIV, scaled, call.operand("tensor2"))
    return call.make(Op.ADD, call.operand("self"), quotient)


def _lerp(call: Call) -> Node:
    ends = call.operand("self"), call.operand("end")
    return call.make(Op.LERP, *ends, call.operand("weight"))


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


def _gelu(call: Call) -> Node:
    op = Op.GELU_TANH if call.values.get("approximate") == "tanh" else Op.GELU
    return call.make(op, call.operand("self"))


def _leaky_relu(call: Call) -> Node:
    attrs = SlopeAttrs(float(call.number("negative_slope")))
    return call.make(Op.LEAKY_RELU, call.operand("self"), attrs=attrs)


def _elu(call: Call) -> Node:
    alpha, scale, slope = (float(call.number(n)) for n in ("alpha", "scale", "input_scale"))
    return call.make(Op.ELU, call.operand("self"), attrs=EluAttrs(alpha, scale, slope))


def _selu(call: Call) -> Node:
    # Klambauer et al. 2017, the constants of ATen's selu.
    attrs = EluAttrs(1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)
    return call.make(Op.ELU, call.operand("self"), attrs=attrs)


def _celu(call: Call) -> Node:
    alpha = float(call.number("alpha"))
    return call.make(Op.ELU, call.operand("self"), attrs=EluAttrs(alpha, 1.0, 1.0 / alpha))


def _softplus(call: Call) -> Node:
    attrs = SoftplusAttrs(float(call.number("beta")), float(call.number("threshold")))
    return call.make(Op.SOFTPLUS, call.operand("self"), attrs=attrs)


def _threshold(call: Call) -> Node:
    limit, value = (call.number(name) for name in ("threshold", "value"))
    attrs = ThresholdAttrs(round_to(limit, call.dtype), round_to(value, call.dtype))
    return call.make(Op.THRESHOLD, call.operand("self"), attrs=attrs)


def _shrink(op: Op) -> Lower:
    def lower(call: Call) -> Node:
        attrs = LambdaAttrs(round_to(float(call.number("lambd")), call.dtype))
        return call.make(op, call.operand("self"), attrs=attrs)

    return lower


def _prelu(call: Call) -> Node:
    weight = call.node("weight")
    rank = call.node("self").type.rank
    if weight.type.rank == 1:
        channels = weight.type.shape[0]
        trailing = () if channels == 1 else (channels, *(1,) * (rank - 2))
        weight = call.build.reshape(weight, trailing)
    return call.make(Op.PRELU, call.operand("self"), call.build.cast(weight, call.dtype))


def _glu(call: Call) -> Node:
    x, dim = call.node("self"), call.dim()
    half = call.shape[dim]
    value, gate = (call.build.slice(x, dim, start, half) for start in (0, half))
    return call.make(Op.MUL, value, call.make(Op.SIGMOID, gate))


def _nan_to_num(call: Call) -> Node:
    if not call.dtype.is_float:
        return call.operand("self")
    defaults = {"nan": 0.0, "posinf": largest(call.dtype), "neginf": -largest(call.dtype)}
    given = {name: call.values.get(name) for name in defaults}
    chosen = {n: float(defaults[n] if v is None else v) for n, v in given.items()}
    return call.make(Op.NAN_TO_NUM, call.operand("self"), attrs=NanToNumAttrs(**chosen))


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


def _where(call: Call) -> Node:
    condition = call.operand("condition", DType.BOOL)
    return call.make(Op.WHERE, condition, call.operand("self"), call.operand("other"))


def _masked_fill(call: Call) -> Node:
    mask = call.operand("mask", DType.BOOL)
    filled = call.make(Op.WHERE, mask, call.operand("value"), call.operand("self"))
    return call.build.expand(filled, call.shape)


def _to_copy(call: Call) -> Node:
    kept = ("layout", "pin_memory")
    if any(call.values.get(name) not in (None, False) for name in kept):
        raise NotWelded("a change of layout is left to the library")
    dtype = call.fakes.get("dtype")
    node = call.node("self")
    return node if dtype is None else call.build.cast(node, FROM_TORCH[dtype])


def _identity(call: Call) -> Node:
    return call.node("self")


def _positive(call: Call) -> Node:
    return call.operand("self")


POINTWISE: dict[str, Lower] = {
    "abs": _unary(Op.ABS),
    "absolute": _unary(Op.ABS),
    "neg": _unary(Op.NEG),
    "negative": _unary(Op.NEG),
    "positive": _positive,
    "sign": _sign,
    "sgn": _sign,
    "signbit": _signbit,
    "reciprocal": _unary(Op.RECIPROCAL),
    "sqrt": _unary(Op.SQRT),
    "rsqrt": _unary(Op.RSQRT),
    "square": _square,
    "exp": _unary(Op.EXP),
    "exp2": _unary(Op.EXP2),
    "expm1": _unary(Op.EXPM1),
    "log": _unary(Op.LOG),
    "log2": _unary(Op.LOG2),
    "log10": _unary(Op.LOG10),
    "log1p": _unary(Op.LOG1P),
    "sin": _unary(Op.SIN),
    "cos": _unary(Op.COS),
    "tan": _unary(Op.TAN),
    "asin": _unary(Op.ASIN),
    "arcsin": _unary(Op.ASIN),
    "acos": _unary(Op.ACOS),
    "arccos": _unary(Op.ACOS),
    "atan": _unary(Op.ATAN),
    "arctan": _unary(Op.ATAN),
    "sinh": _unary(Op.SINH),
    "cosh": _unary(Op.COSH),
    "tanh": _unary(Op.TANH),
    "asinh": _unary(Op.ASINH),
    "arcsinh": _unary(Op.ASINH),
    "acosh": _unary(Op.ACOSH),
    "arccosh": _unary(Op.ACOSH),
    "atanh": _unary(Op.ATANH),
    "arctanh": _unary(Op.ATANH),
    "erf": _unary(Op.ERF),
    "special_erf": _unary(Op.ERF),
    "erfc": _unary(Op.ERFC),
    "special_erfc": _unary(Op.ERFC),
    "sigmoid": _unary(Op.SIGMOID),
    "special_expit": _unary(Op.SIGMOID),
    "logit": _logit,
    "special_logit": _logit,
    "deg2rad": _times(math.pi / 180.0),
    "rad2deg": _times(180.0 / math.pi),
    "relu": _unary(Op.RELU),
    "relu6": _relu6,
    "hardtanh": _hardtanh,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "elu": _elu,
    "selu": _selu,
    "celu": _celu,
    "gelu": _gelu,
    "silu": _float_only(Op.SILU),
    "mish": _float_only(Op.MISH),
    "softplus": _softplus,
    "hardsigmoid": _float_only(Op.HARDSIGMOID),
    "hardswish": _float_only(Op.HARDSWISH),
    "threshold": _threshold,
    "log_sigmoid": _float_only(Op.LOGSIGMOID),
    "softshrink": _shrink(Op.SOFTSHRINK),
    "hardshrink": _shrink(Op.HARDSHRINK),
    "glu": _glu,
    "floor": _rounding(Op.FLOOR),
    "ceil": _rounding(Op.CEIL),
    "round": _rounding(Op.ROUND),
    "trunc": _rounding(Op.TRUNC),
    "fix": _rounding(Op.TRUNC),
    "frac": _float_only(Op.FRAC),
    "isnan": _test(Op.ISNAN, of_integers=False),
    "isinf": _test(Op.ISINF, of_integers=False),
    "isfinite": _test(Op.ISFINITE, of_integers=True),
    "nan_to_num": _nan_to_num,
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
    "add": _add,
    "sub": _sub,
    "subtract": _sub,
    "rsub": _rsub,
    "mul": _binary(Op.MUL, on_bool=Op.LOGICAL_AND),
    "multiply": _binary(Op.MUL, on_bool=Op.LOGICAL_AND),
    "div": _div,
    "divide": _div,
    "true_divide": _div,
    "floor_divide": _dividing(Op.DIV_FLOOR),
    "fmod": _dividing(Op.FMOD),
    "remainder": _dividing(Op.REMAINDER),
    "pow": _pow,
    "atan2": _float_binary(Op.ATAN2),
    "arctan2": _float_binary(Op.ATAN2),
    "hypot": _float_binary(Op.HYPOT),
    "copysign": _float_binary(Op.COPYSIGN),
    "logaddexp": _float_binary(Op.LOGADDEXP),
    "xlogy": _float_binary(Op.XLOGY),
    "special_xlogy": _float_binary(Op.XLOGY),
    "maximum": _binary(Op.MAXIMUM, on_bool=Op.LOGICAL_OR),
    "minimum": _binary(Op.MINIMUM, on_bool=Op.LOGICAL_AND),
    "max": _reduction_or_binary(Op.MAXIMUM, Op.LOGICAL_OR),
    "min": _reduction_or_binary(Op.MINIMUM, Op.LOGICAL_AND),
    "fmax": _binary(Op.FMAX, on_bool=Op.LOGICAL_OR),
    "fmin": _binary(Op.FMIN, on_bool=Op.LOGICAL_AND),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
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
    "where": _where,
    "masked_fill": _masked_fill,
    "lerp": _lerp,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "_to_copy": _to_copy,
    "clone": _identity,
    "contiguous": _identity,
    "alias": _identity,
    "lift_fresh": _identity,
    "lift_fresh_copy": _identity,
}
