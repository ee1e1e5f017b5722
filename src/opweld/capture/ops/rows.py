"""Makers of rows: how operands are promoted, and which types stay with the library."""

from __future__ import annotations

from collections.abc import Callable

from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType

from ..call import Call, Lower, NotFused


def unary(op: Op) -> Lower:
    return lambda call: call.make(op, call.operand("self"))


def float_only(op: Op) -> Lower:
    """Operations that eager does not have for integers, or that mean nothing there."""

    def lower(call: Call) -> Node:
        if not call.dtype.is_float:
            raise NotFused(f"{call.name} of integers is left to the library")
        return call.make(op, call.operand("self"))

    return lower


def rounding(op: Op) -> Lower:
    """Rounding an integer is the integer."""

    def lower(call: Call) -> Node:
        operand = call.operand("self")
        if call.values.get("decimals", 0) != 0:
            raise NotFused("rounding to decimals is left to the library")
        return call.make(op, operand) if call.dtype.is_float else operand

    return lower


def predicate(op: Op, of_integers: bool) -> Lower:
    """A predicate of floats that has one answer for all integers."""

    def lower(call: Call) -> Node:
        operand = call.node("self")
        if operand.type.dtype.is_float:
            return call.make(op, operand)
        return call.build.expand(call.const(of_integers, DType.BOOL), operand.type.shape)

    return lower


def binary(op: Op, on_bool: Op | None = None) -> Callable[[Call], Node]:
    def lower(call: Call) -> Node:
        chosen = op
        if call.dtype is DType.BOOL:
            if on_bool is None:
                raise NotFused(f"{call.name} of bools is left to the library")
            chosen = on_bool
        return call.make(chosen, call.operand("self"), call.operand("other"))

    return lower


def float_binary(op: Op) -> Lower:
    def lower(call: Call) -> Node:
        if not call.dtype.is_float:
            raise NotFused(f"{call.name} of integers is left to the library")
        return call.make(op, call.operand("self"), call.operand("other"))

    return lower
