"""Operations on constants, done once, here.

Constants of 16-bit types are kept as float32: that is what kernels calculate in.
"""

from __future__ import annotations

import math

import numpy as np

from ..ir.graph import Node
from ..ir.numpy.interpret import NUMPY_DTYPES
from ..ir.numpy.meaning import cast_array, round_to_bfloat16
from ..ir.ops import OPS, Kind, Op
from ..ir.rules.pattern import AnyOf, Computed, Match, is_number
from ..ir.rules.rewrite import Condition, Numerics, Rule
from ..ir.types import DType

_FUNCTIONS = (
    Op.EXP, Op.EXP2, Op.EXPM1, Op.LOG, Op.LOG2, Op.LOG10, Op.LOG1P, Op.SIN, Op.COS, Op.TAN,
    Op.ASIN, Op.ACOS, Op.ATAN, Op.SINH, Op.COSH, Op.TANH, Op.ASINH, Op.ACOSH, Op.ATANH, Op.ERF,
    Op.ERFC, Op.POW, Op.ATAN2, Op.HYPOT, Op.LOGADDEXP, Op.XLOGY, Op.SIGMOID, Op.GELU, Op.GELU_TANH,
    Op.SILU, Op.MISH, Op.SOFTSIGN, Op.HARDSIGMOID, Op.HARDSWISH, Op.LOGSIGMOID, Op.TANHSHRINK,
    Op.ELU, Op.SOFTPLUS, Op.RSQRT, Op.LERP, Op.ADDCMUL,
)  # fmt: skip
"""Operations of more than one correct rounding: folded in float64, then rounded once."""


def _all_numbers(match: Match) -> bool:
    return all(is_number(operand) for operand in match.root.inputs)


def _is_function(match: Match) -> bool:
    return match.root.op in _FUNCTIONS and match.root.type.dtype.is_float


def _folded(match: Match) -> Node:
    compute = NUMPY_DTYPES[match.root.inputs[0].type.dtype.compute]
    return _constant(match, np.float64 if _is_function(match) else compute)


def _constant(match: Match, compute: type[np.generic]) -> Node:
    """The root evaluated in `compute`, rounded to its own compute type, as a constant."""
    root = match.root
    row = OPS[root.op].evaluate
    assert row is not None, f"{root.op.value} has no meaning in its row"
    operands = [
        np.asarray(operand.attrs.value).astype(
            bool if operand.type.dtype is DType.BOOL else compute
        )
        for operand in root.inputs
    ]
    with np.errstate(all="ignore"):
        value = row(*operands, root.attrs) if type(root.attrs).__slots__ else row(*operands)
    return match.arena.const(_number(np.asarray(value), root), root.type.dtype)


def _number(value: np.ndarray, root: Node) -> float | int | bool:
    """One NaN object for all, so that interning finds it again."""
    dtype = root.type.dtype
    stored = cast_array(value, NUMPY_DTYPES[dtype if root.op is Op.CAST else dtype.compute])
    if root.op is Op.CAST and dtype is DType.BF16:
        stored = round_to_bfloat16(stored)
    number: float | int | bool = stored.item()
    return math.nan if number != number else number


numbers = Condition("all operands are numbers", _all_numbers)
rounds_once = Condition("it rounds once at most", lambda match: not _is_function(match))
function = Condition("it rounds more than once", _is_function)

FOLDING: tuple[Rule, ...] = (
    Rule(
        "fold",
        AnyOf(Kind.POINTWISE, "x"),
        Computed("its value", _folded),
        Numerics.EXACT,
        numbers & rounds_once,
    ),
    Rule(
        "fold-function",
        AnyOf(Kind.POINTWISE, "x"),
        Computed("its value", _folded),
        Numerics.REORDER,
        numbers & function,
    ),
)
