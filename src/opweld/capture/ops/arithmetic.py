"""Arithmetic: one row per operator. A composition keeps eager's order (BinaryOps.cpp)."""

from __future__ import annotations

import math
from typing import Any

import torch

from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType

from ..build import Shape
from ..call import Call, Lower, NotFused
from ..dtypes import FROM_TORCH
from .rows import binary, float_binary

# Largest exponent of an integer power that becomes products.
_MAX_INTEGER_POWER = 16


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
        raise NotFused("an integer division that may be by zero is left to the library")
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
        raise NotFused("an integer power with a large or variable exponent is left to the library")
    power = call.operand("self")
    if exponent == 0:
        return call.build.expand(call.const(1), call.shape)
    base = power
    for _ in range(exponent - 1):
        power = call.make(Op.MUL, power, base)
    return power


def _clamp(call: Call) -> Node:
    bounds = call.values.get("min"), call.values.get("max")
    if isinstance(bounds[0], Node) and bounds[0] is bounds[1]:
        raise NotFused("its gradient where both bounds are equal is the library's")
    if any(isinstance(bound, float) and math.isnan(bound) for bound in bounds):
        raise NotFused("a bound of NaN is left to the library: torch 2.11 at times ignores it")
    result = call.operand("self")
    if call.values.get("min") is not None:
        result = call.make(Op.CLAMP_MIN, result, call.operand("min", rounded=True))
    if call.values.get("max") is not None:
        result = call.make(Op.CLAMP_MAX, result, call.operand("max", rounded=True))
    return call.build.expand(result, call.shape)


def _addcmul(call: Call) -> Node:
    scaled, factor = _scaled(call, "tensor1", "value"), call.operand("tensor2")
    if call.dtype.is_float:
        return call.make(Op.ADDCMUL, call.operand("self"), scaled, factor)
    return call.make(Op.ADD, call.operand("self"), call.make(Op.MUL, scaled, factor))


def _addcdiv(call: Call) -> Node:
    if not call.dtype.is_float:
        raise NotFused("addcdiv of integers is left to the library")
    scaled = _scaled(call, "tensor1", "value")
    quotient = call.make(Op.DIV, scaled, call.operand("tensor2"))
    return call.make(Op.ADD, call.operand("self"), quotient)


def _lerp(call: Call) -> Node:
    ends = call.operand("self"), call.operand("end")
    return call.make(Op.LERP, *ends, call.operand("weight"))


def _outer(call: Call) -> Node:
    left = call.operand("self")
    right = call.operand("vec2" if "vec2" in call.values else "other")
    column = call.build.reshape(left, (left.type.num_elems, 1))
    return call.make(Op.MUL, column, call.build.reshape(right, (right.type.num_elems,)))


def _batch_norm(call: Call) -> tuple[Node, ...]:
    """Batch normalisation by running statistics: (x - mean) / sqrt(var + eps) * weight + bias.

    The other two results are the batch's statistics, which inference does not have.
    """
    x = call.node("input")
    if not x.type.dtype.is_float or x.type.rank < 2:
        raise NotFused("a normalisation of one-dimensional input is left to the library")
    dtype = x.type.dtype.compute
    along = (x.type.shape[1], *(1,) * (x.type.rank - 2))
    centred = call.make(Op.SUB, call.build.cast(x, dtype), _channels(call, "running_mean", along))
    variance = call.build.cast(call.node("running_var"), dtype)
    spread = call.make(Op.ADD, variance, call.const(call.number("eps"), dtype))
    factor = call.build.reshape(call.make(Op.RSQRT, spread), along)
    result = call.make(Op.MUL, centred, factor)
    if call.values["weight"] is not None:
        result = call.make(Op.MUL, result, _channels(call, "weight", along))
    if call.values["bias"] is not None:
        result = call.make(Op.ADD, result, _channels(call, "bias", along))
    call.values.get("momentum")  # only training moves the statistics
    nothing = [_zeros(call, fake) for fake in call.fake[1:]]
    return (call.build.cast(result, x.type.dtype), *nothing)


def _zeros(call: Call, fake: torch.Tensor) -> Node:
    return call.build.expand(call.const(0, FROM_TORCH[fake.dtype]), tuple(fake.shape))


def _channels(call: Call, name: str, shape: Shape) -> Node:
    dtype = call.node("input").type.dtype.compute
    return call.build.reshape(call.build.cast(call.node(name), dtype), shape)


def _heaviside(call: Call) -> Node:
    if not call.dtype.is_float:
        raise NotFused("heaviside of integers is left to the library")
    return call.make(Op.HEAVISIDE, call.operand("self"), call.operand("values"))


def _ldexp(call: Call) -> Node:
    """self * 2 ** other."""
    power = call.make(Op.POW, call.const(2.0), call.operand("other"))
    return call.make(Op.MUL, call.operand("self"), power)


ARITHMETIC: dict[str, Lower] = {
    "add": _add,
    "sub": _sub,
    "subtract": _sub,
    "rsub": _rsub,
    "mul": binary(Op.MUL, on_bool=Op.LOGICAL_AND),
    "multiply": binary(Op.MUL, on_bool=Op.LOGICAL_AND),
    "div": _div,
    "divide": _div,
    "true_divide": _div,
    "floor_divide": _dividing(Op.DIV_FLOOR),
    "fmod": _dividing(Op.FMOD),
    "remainder": _dividing(Op.REMAINDER),
    "outer": _outer,
    "pow": _pow,
    "float_power": _pow,
    "ldexp": _ldexp,
    "heaviside": _heaviside,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "atan2": float_binary(Op.ATAN2),
    "arctan2": float_binary(Op.ATAN2),
    "hypot": float_binary(Op.HYPOT),
    "copysign": float_binary(Op.COPYSIGN),
    "logaddexp": float_binary(Op.LOGADDEXP),
    "xlogy": float_binary(Op.XLOGY),
    "special_xlogy": float_binary(Op.XLOGY),
    "maximum": binary(Op.MAXIMUM, on_bool=Op.LOGICAL_OR),
    "minimum": binary(Op.MINIMUM, on_bool=Op.LOGICAL_AND),
    "fmax": binary(Op.FMAX, on_bool=Op.LOGICAL_OR),
    "fmin": binary(Op.FMIN, on_bool=Op.LOGICAL_AND),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "lerp": _lerp,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
}
