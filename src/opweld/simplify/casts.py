"""Conversions that change nothing.

A 16-bit result that no conversion or store has rounded yet carries the digits of float32; a
conversion to its own type rounds it, so that one stays.
"""

from __future__ import annotations

from ..ir.attrs import CastAttrs
from ..ir.graph import Node
from ..ir.ops import Op
from ..ir.rules.pattern import Match
from ..ir.rules.rewrite import Condition, Numerics, Rule
from ..ir.types import DType
from .terms import cast, x

EXACT = Numerics.EXACT

_SIGNIFICAND_BITS = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}
_EXPONENT_BITS = {DType.F16: 5, DType.BF16: 8, DType.F32: 8, DType.F64: 11}
_VALUE_BITS = {
    DType.BOOL: 1,
    DType.U8: 8,
    DType.I8: 7,
    DType.I16: 15,
    DType.I32: 31,
    DType.I64: 63,
}
_UNSIGNED = (DType.BOOL, DType.U8)
_ROUNDED = (Op.INPUT, Op.WEIGHT, Op.CALL, Op.ITEM, Op.CAST)
_REARRANGES = (Op.PERMUTE, Op.RESHAPE, Op.EXPAND, Op.SLICE, Op.FLIP, Op.WINDOW)


def holds_all_of(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if wide is narrow:
        return True
    if wide.is_float and narrow.is_float:
        return (
            _SIGNIFICAND_BITS[wide] >= _SIGNIFICAND_BITS[narrow]
            and _EXPONENT_BITS[wide] >= _EXPONENT_BITS[narrow]
        )
    if wide.is_float:
        return _SIGNIFICAND_BITS[wide] >= _VALUE_BITS[narrow]
    if narrow.is_float or wide is DType.BOOL:
        return False
    return _VALUE_BITS[wide] >= _VALUE_BITS[narrow] and (
        wide not in _UNSIGNED or narrow in _UNSIGNED
    )


def is_rounded(node: Node) -> bool:
    """Whether the values of `node` have no more digits than its type holds."""
    while node.op in _REARRANGES:
        node = node.inputs[0]
    return not node.type.dtype.is_half or node.op in _ROUNDED


def _goes_to_own_type(match: Match) -> bool:
    operand = match.node("x")
    return match.attrs("p") == CastAttrs(operand.type.dtype) and is_rounded(operand)


def _first_is_exact(match: Match) -> bool:
    """A float that goes to an integer is left alone: out of range the way there matters."""
    start, middle, end = match.node("x").type.dtype, match.attrs("p").dtype, match.attrs("q").dtype
    if middle is start and not is_rounded(match.node("x")):
        return False
    to_integer = start.is_float and not end.is_float and end is not DType.BOOL
    return holds_all_of(middle, start) and not to_integer


own_type = Condition("p is the type of x, which is rounded", _goes_to_own_type)
first_is_exact = Condition("p holds all values of x", _first_is_exact)

CASTS: tuple[Rule, ...] = (
    Rule("cast-identity", cast(x, attrs="p"), x, EXACT, own_type),
    Rule(
        "cast-cast", cast(cast(x, attrs="p"), attrs="q"), cast(x, attrs="q"), EXACT, first_is_exact
    ),
)
