"""Tensors made from nothing but sizes and numbers: one row per operator."""

from __future__ import annotations

from typing import Any

from opweld.ir.attrs import IotaAttrs
from opweld.ir.expr import Expr, Size
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType

from ..call import Call, Lower, NotFused

# float32 holds every integer up to here, so that a range of whole numbers is exact in it.
_EXACT_INTEGERS = {DType.F16: 2**11, DType.BF16: 2**8, DType.F32: 2**24, DType.F64: 2**53}


def _filled(value: Any) -> Lower:
    def lower(call: Call) -> Node:
        return call.build.expand(call.const(value), call.shape)

    return lower


def _full(name: str) -> Lower:
    def lower(call: Call) -> Node:
        return call.build.expand(call.operand(name), call.shape)

    return lower


def _arange(call: Call) -> Node:
    start = call.values.get("start", 0)
    step = call.values.get("step", 1)
    length = call.shape[0]
    if not isinstance(start, int | float) or not isinstance(step, int | float):
        raise NotFused("a range with a start known at run time only is left to the library")
    if call.dtype.is_float and not _exact(call.dtype, start, step, length):
        raise NotFused("a range of fractions is left to the library")
    return call.build.arena.iota(IotaAttrs(_whole(start), _whole(step), length), call.dtype)


def _exact(dtype: DType, start: float, step: float, length: Size) -> bool:
    whole = float(start).is_integer() and float(step).is_integer()
    if isinstance(length, Expr) or not whole:
        return False
    return max(abs(start), abs(start + step * length)) <= _EXACT_INTEGERS[dtype]


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value


def _eye(call: Call) -> Node:
    row, column = _positions(call)
    return call.build.cast(call.make(Op.EQ, row, column), call.dtype)


def _triangle(op: Op) -> Lower:
    """Element (row, column) stays where column - row `op` diagonal."""

    def lower(call: Call) -> Node:
        row, column = _positions(call)
        limit = call.make(Op.ADD, row, call.const(call.number("diagonal"), DType.I64))
        kept = call.make(op, column, limit)
        return call.make(Op.WHERE, kept, call.operand("self"), call.const(0))

    return lower


def _positions(call: Call) -> tuple[Node, Node]:
    rows, columns = call.shape[-2:]
    row = call.build.arena.iota(IotaAttrs(0, 1, rows), DType.I64)
    column = call.build.arena.iota(IotaAttrs(0, 1, columns), DType.I64)
    return call.build.reshape(row, (rows, 1)), column


CREATION: dict[str, Lower] = {
    "zeros": _filled(0),
    "zeros_like": _filled(0),
    "new_zeros": _filled(0),
    "ones": _filled(1),
    "ones_like": _filled(1),
    "new_ones": _filled(1),
    "full": _full("fill_value"),
    "full_like": _full("fill_value"),
    "new_full": _full("fill_value"),
    "fill": _full("value"),
    "zero": _filled(0),
    "scalar_tensor": _full("s"),
    "arange": _arange,
    "eye": _eye,
    "tril": _triangle(Op.LE),
    "triu": _triangle(Op.GE),
}
