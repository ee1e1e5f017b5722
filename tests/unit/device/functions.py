"""The pointwise functions of math.h: how each is called, and what PyTorch calls the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

Reference = Callable[..., torch.Tensor]


@dataclass(frozen=True, slots=True)
class Function:
    """`op::name(values..., constants...)`, with the range that dense samples are drawn from."""

    name: str
    reference: Reference
    num_values: int = 1
    constants: tuple[float, ...] = ()
    low: float = -10.0
    high: float = 10.0
    floats: bool = True
    integers: bool = False
    returns_bool: bool = False


def _unary(
    name: str, reference: Reference, low: float = -10.0, high: float = 10.0, **more
) -> Function:
    return Function(name, reference, 1, low=low, high=high, **more)


def _binary(name: str, reference: Reference, **more) -> Function:
    return Function(name, reference, 2, **more)


def _constant(name: str, reference: Reference, *constants: float, **more) -> Function:
    return Function(name, lambda x: reference(x, *constants), 1, constants, **more)


FUNCTIONS = (
    _unary("neg", torch.neg, integers=True),
    _unary("abs", torch.abs, integers=True),
    _unary("sign", torch.sign, integers=True),
    _unary("square", torch.square, integers=True),
    _unary("reciprocal", torch.reciprocal),
    _unary("sqrt", torch.sqrt, 0.0, 100.0),
    _unary("rsqrt", torch.rsqrt, 0.0, 100.0),
    _unary("exp", torch.exp),
    _unary("exp2", torch.exp2),
    _unary("expm1", torch.expm1, -3.0, 3.0),
    _unary("log", torch.log, 0.0, 100.0),
    _unary("log2", torch.log2, 0.0, 100.0),
    _unary("log10", torch.log10, 0.0, 100.0),
    _unary("log1p", torch.log1p, -1.0, 10.0),
    _unary("sin", torch.sin),
    _unary("cos", torch.cos),
    _unary("tan", torch.tan),
    _unary("asin", torch.asin, -1.0, 1.0),
    _unary("acos", torch.acos, -1.0, 1.0),
    _unary("atan", torch.atan),
    _unary("sinh", torch.sinh),
    _unary("cosh", torch.cosh),
    _unary("tanh", torch.tanh, -5.0, 5.0),
    _unary("asinh", torch.asinh),
    _unary("acosh", torch.acosh, 1.0, 20.0),
    _unary("atanh", torch.atanh, -1.0, 1.0),
    _unary("erf", torch.erf, -4.0, 4.0),
    _unary("erfc", torch.erfc, -4.0, 4.0),
    _unary("sigmoid", torch.sigmoid),
    _unary("relu", torch.relu, integers=True),
    _unary("gelu", F.gelu, -6.0, 6.0),
    _unary("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), -6.0, 6.0),
    _unary("silu", F.silu),
    _unary("mish", F.mish),
    _unary("softsign", F.softsign),
    _unary("relu6", F.relu6),
    _unary("hardsigmoid", F.hardsigmoid),
    _unary("hardswish", F.hardswish),
    _unary("logsigmoid", F.logsigmoid),
    _unary("tanhshrink", F.tanhshrink),
    _unary("floor", torch.floor, integers=True),
    _unary("ceil", torch.ceil, integers=True),
    _unary("round", torch.round, integers=True),
    _unary("trunc", torch.trunc, integers=True),
    _unary("frac", torch.frac),
    _unary("isnan", torch.isnan, returns_bool=True),
    _unary("isinf", torch.isinf, returns_bool=True),
    _unary("isfinite", torch.isfinite, returns_bool=True),
    _unary("signbit", torch.signbit, returns_bool=True),
    _constant("nan_to_num", torch.nan_to_num, 0.5, 7.0, -8.0),
    _constant("leaky_relu", F.leaky_relu, 0.01),
    _constant("softplus", F.softplus, 1.5, 12.0),
    _constant("threshold", F.threshold, 0.25, -3.0),
    _constant("hardtanh", F.hardtanh, -0.75, 0.5),
    _constant("softshrink", F.softshrink, 0.5),
    _constant("hardshrink", F.hardshrink, 0.5),
    _constant("elu", torch.ops.aten.elu.default, 1.25, 1.5, 0.75),
    _binary("prelu", lambda x, w: torch.where(x > 0, x, w * x)),
    _binary("maximum", torch.maximum, integers=True),
    _binary("minimum", torch.minimum, integers=True),
    _binary("fmax", torch.fmax, integers=True),
    _binary("fmin", torch.fmin, integers=True),
    _binary("clamp_min", lambda x, lo: torch.clamp(x, min=lo), integers=True),
    _binary("clamp_max", lambda x, hi: torch.clamp(x, max=hi), integers=True),
    _binary("fmod", torch.fmod, integers=True),
    _binary("remainder", torch.remainder, integers=True),
    _binary("div_trunc", lambda a, b: torch.div(a, b, rounding_mode="trunc"), integers=True),
    _binary("div_floor", lambda a, b: torch.div(a, b, rounding_mode="floor"), integers=True),
    _binary("pow", torch.pow, low=0.0, integers=True),
    _binary("ratio", torch.div, low=1.0),
    _binary("atan2", torch.atan2),
    _binary("hypot", torch.hypot),
    _binary("copysign", torch.copysign),
    _binary("logaddexp", torch.logaddexp),
    _binary("xlogy", torch.xlogy, low=0.0),
    _binary("heaviside", torch.heaviside, integers=True),
    _binary("shift_left", torch.bitwise_left_shift, floats=False, integers=True),
    _binary("shift_right", torch.bitwise_right_shift, floats=False, integers=True),
    Function("lerp", torch.lerp, 3),
    Function("addcmul", torch.addcmul, 3),
)
BY_NAME = {f.name: f for f in FUNCTIONS}
OF_FLOATS = tuple(f.name for f in FUNCTIONS if f.floats)
FLOAT_TO_FLOAT = tuple(f.name for f in FUNCTIONS if f.floats and not f.returns_bool)
OF_INTEGERS = tuple(f.name for f in FUNCTIONS if f.integers)


def call(function: Function, values: tuple[str, ...], compute: str) -> str:
    """The call as C++ text, constants spelled exactly."""
    constants = (f"{compute}({float(c).hex()})" for c in function.constants)
    return f"op::{function.name}({', '.join((*values, *constants))})"
