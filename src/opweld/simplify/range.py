"""What values a node can have: an interval, whether NaN, whether -0.0.

Bounds hold for what kernels compute, rounding included. Addition, multiplication, division, square
root and conversions round correctly, hence monotonically: their bounds are computed in the same
type. Of other functions only bounds that implementations keep are used: glibc's vector tanhf,
erff, erfcf, expf and expm1f keep theirs (tried on a quarter of all float32); its sinf exceeds 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from ..ir.attrs import CallAttrs, NanToNumAttrs
from ..ir.graph import Node
from ..ir.numpy.interpret import NUMPY_DTYPES
from ..ir.numpy.meaning import round_to_bfloat16
from ..ir.ops import OPS, Op
from ..ir.rules.pattern import is_number
from ..ir.types import DType

DEPTH = 8
"""How far above a node its range is looked for; beyond, everything is possible."""


@dataclass(frozen=True, slots=True)
class Range:
    """low <= value <= high, or NaN where `nan`; -0.0 only where `negative_zero`."""

    low: float
    high: float
    nan: bool = False
    negative_zero: bool = False

    @property
    def may_be_negative_zero(self) -> bool:
        return self.negative_zero and self.low <= 0 <= self.high

    @property
    def is_finite(self) -> bool:
        return not self.nan and math.isfinite(self.low) and math.isfinite(self.high)

    def is_within(self, largest: float) -> bool:
        """Whether no number is larger: none is infinite."""
        return -largest <= self.low and self.high <= largest

    def union(self, other: Range) -> Range:
        return Range(
            min(self.low, other.low),
            max(self.high, other.high),
            self.nan or other.nan,
            self.negative_zero or other.negative_zero,
        )


ANYTHING = Range(-math.inf, math.inf, nan=True, negative_zero=True)

_BOUNDED = {
    Op.TANH: (-1, 1),
    Op.SIGMOID: (0, 1),
    Op.HARDSIGMOID: (0, 1),
    Op.ERF: (-1, 1),
    Op.ERFC: (0, 2),
    Op.EXP: (0, math.inf),
    Op.EXP2: (0, math.inf),
    Op.EXPM1: (-1, math.inf),
    Op.SOFTPLUS: (0, math.inf),
    Op.LOGSIGMOID: (-math.inf, 0),
    Op.SIGN: (-1, 1),
}
_BOUNDED_IF_FINITE = {Op.SOFTSIGN: (-1, 1), Op.FRAC: (-1, 1)}
_POSITIVE_ZERO_ONLY = (Op.SIGMOID, Op.HARDSIGMOID, Op.ERFC, Op.EXP, Op.EXP2, Op.SOFTPLUS)
_MONOTONE = {Op.FLOOR: np.floor, Op.CEIL: np.ceil, Op.ROUND: np.rint, Op.TRUNC: np.trunc}
_SAME_VALUES = (Op.PERMUTE, Op.RESHAPE, Op.EXPAND, Op.SLICE, Op.FLIP, Op.WINDOW)
_EXTREMES = (Op.AMAX, Op.AMIN)
_SUMS = (Op.SUM, Op.MEAN, Op.CUMSUM)
_ARITHMETIC = (Op.ADD, Op.SUB, Op.MUL, Op.DIV)
_LARGER = (Op.CLAMP_MIN, Op.MAXIMUM)
_SMALLER = (Op.CLAMP_MAX, Op.MINIMUM)
_SOFTMAX = ("aten.softmax.int", "aten._softmax.default", "aten._safe_softmax.default")


def range_of(node: Node, depth: int = DEPTH) -> Range:
    """What values `node` can have, by the operations up to `depth` above it."""
    if is_number(node):
        return _of_number(node)
    rule = _BY_OP.get(node.op)
    if rule is None or depth == 0:
        return of_type(node.type.dtype)
    operands = tuple(range_of(operand, depth - 1) for operand in node.inputs)
    return rule(node, operands)


def of_type(dtype: DType) -> Range:
    """What values an element of this type can have."""
    if dtype.is_float or dtype.is_complex:
        return ANYTHING
    if dtype is DType.BOOL:
        return Range(0, 1)
    info = np.iinfo(NUMPY_DTYPES[dtype])
    return Range(int(info.min), int(info.max))


def _of_number(node: Node) -> Range:
    value = node.attrs.value
    if node.type.dtype.is_float:
        value = float(NUMPY_DTYPES[node.type.dtype.compute](value))
    if value != value:
        return ANYTHING
    return Range(value, value, negative_zero=value == 0 and math.copysign(1, value) < 0)


def _bounded(node: Node, operands: tuple[Range, ...]) -> Range:
    if not node.type.dtype.is_float:
        return of_type(node.type.dtype)
    low, high = _BOUNDED[node.op]
    may_be_negative_zero = node.op not in _POSITIVE_ZERO_ONLY
    return Range(low, high, operands[0].nan and node.op is not Op.SIGN, may_be_negative_zero)


def _bounded_if_finite(node: Node, operands: tuple[Range, ...]) -> Range:
    low, high = _BOUNDED_IF_FINITE[node.op]
    return Range(low, high, not operands[0].is_finite, True)


def _monotone(node: Node, operands: tuple[Range, ...]) -> Range:
    (operand,) = operands
    function = _MONOTONE[node.op]
    return Range(float(function(operand.low)), float(function(operand.high)), operand.nan, True)


def _arithmetic(node: Node, operands: tuple[Range, ...]) -> Range:
    left, right = operands
    if _is_part_of_sum(node, left):
        return _PART
    if not node.type.dtype.is_float or (node.op is Op.DIV and right.low <= 0 <= right.high):
        return of_type(node.type.dtype)
    compute = NUMPY_DTYPES[node.type.dtype.compute]
    row: Callable[..., np.ndarray] = OPS[node.op].evaluate  # type: ignore[assignment]
    with np.errstate(all="ignore"):
        ends = [
            float(row(compute(one), compute(other)))
            for one, other in product((left.low, left.high), (right.low, right.high))
        ]
    if any(math.isnan(end) for end in ends):
        return _squared(node) or ANYTHING
    nan = not (left.is_finite and right.is_finite)
    return _squared(node, nan) or Range(min(ends), max(ends), nan, True)


_PART = Range(0.0, 2.0, nan=True, negative_zero=True)
"""A sum that kernels make in pieces may be an ulp smaller than its only element."""


def _is_part_of_sum(node: Node, part: Range) -> bool:
    """Whether it is an element by the sum of them all, none of which is negative: a softmax."""
    by = node.inputs[1]
    return (
        node.op is Op.DIV and by.op is Op.SUM and by.inputs[0] is node.inputs[0] and part.low >= 0
    )


def _sum(node: Node, operands: tuple[Range, ...]) -> Range:
    """Numbers that are not negative have no negative sum."""
    (operand,) = operands
    if not node.type.dtype.is_float or operand.low < 0:
        return of_type(node.type.dtype)
    return Range(0.0, math.inf, operand.nan, operand.negative_zero)


def _squared(node: Node, nan: bool = True) -> Range | None:
    """The range of a product of a value with itself."""
    if node.op is not Op.MUL or node.inputs[0] is not node.inputs[1]:
        return None
    return Range(0.0, math.inf, nan)


def _neg(node: Node, operands: tuple[Range, ...]) -> Range:
    (operand,) = operands
    if not node.type.dtype.is_float:
        return of_type(node.type.dtype)
    return Range(-operand.high, -operand.low, operand.nan, True)


def _abs(node: Node, operands: tuple[Range, ...]) -> Range:
    (operand,) = operands
    if not node.type.dtype.is_float:
        return of_type(node.type.dtype)
    low = 0.0 if operand.low <= 0 <= operand.high else min(abs(operand.low), abs(operand.high))
    return Range(low, max(abs(operand.low), abs(operand.high)), operand.nan)


def _relu(node: Node, operands: tuple[Range, ...]) -> Range:
    (operand,) = operands
    return Range(max(operand.low, 0), max(operand.high, 0), operand.nan, operand.negative_zero)


def _larger(node: Node, operands: tuple[Range, ...]) -> Range:
    left, right = operands
    either = left.union(right)
    return Range(
        max(left.low, right.low), max(left.high, right.high), either.nan, either.negative_zero
    )


def _smaller(node: Node, operands: tuple[Range, ...]) -> Range:
    left, right = operands
    either = left.union(right)
    return Range(
        min(left.low, right.low), min(left.high, right.high), either.nan, either.negative_zero
    )


def _sqrt(node: Node, operands: tuple[Range, ...]) -> Range:
    (operand,) = operands
    if not node.type.dtype.is_float:
        return of_type(node.type.dtype)
    root = NUMPY_DTYPES[node.type.dtype.compute]
    low, high = (float(np.sqrt(root(max(end, 0.0)))) for end in (operand.low, operand.high))
    return Range(low, high, operand.nan or operand.low < 0, operand.negative_zero)


def _same_values(node: Node, operands: tuple[Range, ...]) -> Range:
    return operands[0]


def _hardtanh(node: Node, operands: tuple[Range, ...]) -> Range:
    (operand,) = operands
    compute = NUMPY_DTYPES[node.type.dtype.compute]
    low, high = (float(compute(bound)) for bound in (node.attrs.low, node.attrs.high))
    least, most = (min(max(end, low), high) for end in (operand.low, operand.high))
    return Range(least, most, operand.nan, negative_zero=True)


def _any_of(node: Node, operands: tuple[Range, ...]) -> Range:
    ranges = operands[1:] if node.op is Op.WHERE else operands
    result = ranges[0]
    for other in ranges[1:]:
        result = result.union(other)
    return result


def _cast(node: Node, operands: tuple[Range, ...]) -> Range:
    (operand,) = operands
    if not node.type.dtype.is_float:
        return of_type(node.type.dtype)
    low, high = (_rounded(end, node.type.dtype) for end in (operand.low, operand.high))
    from_float = node.inputs[0].type.dtype.is_float
    return Range(low, high, operand.nan, from_float)


def _rounded(value: float, dtype: DType) -> float:
    with np.errstate(all="ignore"):
        stored = np.asarray(value, np.float64).astype(NUMPY_DTYPES[dtype])
    return float(round_to_bfloat16(stored) if dtype is DType.BF16 else stored)


def _nan_to_num(node: Node, operands: tuple[Range, ...]) -> Range:
    (operand,), attrs = operands, node.attrs
    assert isinstance(attrs, NanToNumAttrs)
    largest = float(np.finfo(NUMPY_DTYPES[node.type.dtype.compute]).max)
    replaced = (attrs.nan, attrs.posinf, attrs.neginf)
    low, high = max(operand.low, -largest), min(operand.high, largest)
    return Range(min(low, *replaced), max(high, *replaced), False, True)


def _call(node: Node, operands: tuple[Range, ...]) -> Range:
    return Range(0.0, 1.0, nan=True) if _is_softmax(node) else of_type(node.type.dtype)


def _item(node: Node, operands: tuple[Range, ...]) -> Range:
    return operands[0] if _is_softmax(node.inputs[0]) else of_type(node.type.dtype)


def _is_softmax(node: Node) -> bool:
    """Each result is a number divided by a sum of which it is a part."""
    return isinstance(node.attrs, CallAttrs) and node.attrs.target in _SOFTMAX


_BY_OP: dict[Op, Callable[[Node, tuple[Range, ...]], Range]] = {
    **dict.fromkeys(_BOUNDED, _bounded),
    **dict.fromkeys(_BOUNDED_IF_FINITE, _bounded_if_finite),
    **dict.fromkeys(_MONOTONE, _monotone),
    **dict.fromkeys((*_SAME_VALUES, *_EXTREMES), _same_values),
    **dict.fromkeys(_SUMS, _sum),
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_LARGER, _larger),
    **dict.fromkeys(_SMALLER, _smaller),
    Op.NEG: _neg,
    Op.ABS: _abs,
    Op.RELU: _relu,
    Op.HARDTANH: _hardtanh,
    Op.SQRT: _sqrt,
    Op.WHERE: _any_of,
    Op.CAT: _any_of,
    Op.CAST: _cast,
    Op.NAN_TO_NUM: _nan_to_num,
    Op.CALL: _call,
    Op.ITEM: _item,
}
