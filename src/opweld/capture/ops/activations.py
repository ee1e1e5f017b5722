"""Activations: one row per operator. A composition keeps eager's order (Activation.cpp)."""

from __future__ import annotations

from typing import Any

from opweld.ir.attrs import (
    BoundsAttrs,
    EluAttrs,
    LambdaAttrs,
    SlopeAttrs,
    SoftplusAttrs,
    ThresholdAttrs,
)
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType

from ..call import Call, Lower, NotFused
from ..dtypes import round_to
from .rows import float_only, unary


def _between(call: Call, low: Any, high: Any) -> Node:
    dtype = call.dtype
    if dtype.is_float:
        attrs = BoundsAttrs(*(round_to(float(limit), dtype) for limit in (low, high)))
        return call.make(Op.HARDTANH, call.operand("self"), attrs=attrs)
    raised = call.make(Op.CLAMP_MIN, call.operand("self"), call.const(round_to(low, dtype)))
    return call.make(Op.CLAMP_MAX, raised, call.const(round_to(high, dtype)))


def _hardtanh(call: Call) -> Node:
    return _between(call, call.number("min_val"), call.number("max_val"))


def _relu6(call: Call) -> Node:
    return _between(call, 0.0, 6.0)


def _gelu(call: Call) -> Node:
    op = Op.GELU_TANH if call.values.get("approximate") == "tanh" else Op.GELU
    return call.make(op, call.operand("self"))


def _leaky_relu(call: Call) -> Node:
    attrs = SlopeAttrs(float(call.number("negative_slope")))
    return call.make(Op.LEAKY_RELU, call.operand("self"), attrs=attrs)


def _rrelu(call: Call) -> Node:
    """At inference the slope is the mean of the two bounds."""
    if call.values["training"]:
        raise NotFused("a random slope is drawn by the library")
    slope = (call.number("lower") + call.number("upper")) / 2
    return call.make(Op.LEAKY_RELU, call.operand("self"), attrs=SlopeAttrs(slope))


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


def _sixth(op: Op) -> Lower:
    """On CUDA eager multiplies float64, too, by a sixth in float32 (ActivationHardswishKernel.cu):
    what is more exact is not the same.
    """

    def lower(call: Call) -> Node | tuple[Node, ...]:
        if call.dtype is DType.F64 and call.fakes["self"].device.type != "cpu":
            raise NotFused(f"{call.name} of float64 is left to the library")
        return float_only(op)(call)

    return lower


ACTIVATIONS: dict[str, Lower] = {
    "sigmoid": unary(Op.SIGMOID),
    "special_expit": unary(Op.SIGMOID),
    "relu": unary(Op.RELU),
    "relu6": _relu6,
    "hardtanh": _hardtanh,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "rrelu": _rrelu,
    "elu": _elu,
    "selu": _selu,
    "celu": _celu,
    "gelu": _gelu,
    "silu": float_only(Op.SILU),
    "mish": float_only(Op.MISH),
    "softplus": _softplus,
    "hardsigmoid": _sixth(Op.HARDSIGMOID),
    "hardswish": _sixth(Op.HARDSWISH),
    "threshold": _threshold,
    "log_sigmoid": float_only(Op.LOGSIGMOID),
    "softshrink": _shrink(Op.SOFTSHRINK),
    "hardshrink": _shrink(Op.HARDSHRINK),
    "glu": _glu,
}
