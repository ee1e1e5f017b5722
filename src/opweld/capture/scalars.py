"""Python numbers in the exported graph: sizes, and numbers read from tensors with `.item()`.

A number is an int, a size expression, or, where it is known at run time only, a rank-0 node of
float64, int64 or bool: Python's own arithmetic.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from opweld.errors import CaptureError, OriginalKept
from opweld.ir.attrs import CallAttrs, Operand
from opweld.ir.expr import Expr
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType

from .build import Builder
from .call import RunTimeScalar
from .modules.origins import where_of
from .sizes import Symbols

_BINARY = {
    operator.add: Op.ADD,
    operator.sub: Op.SUB,
    operator.mul: Op.MUL,
    operator.truediv: Op.DIV,
    operator.pow: Op.POW,
}
_READS = ("aten.item.default", "aten._local_scalar_dense.default")


def scalar_node(node: fx.Node, values: dict[str, Any], build: Builder, symbols: Symbols) -> Any:
    """The number that an exported node computes. Raises CaptureError for one that is unknown."""
    if str(node.target) in _READS:
        tensor = values[node.args[0].name]
        if not isinstance(tensor, Node):
            raise OriginalKept("the forward reads a complex number", where=where_of(node))
        return RunTimeScalar(_read(tensor, build))
    fake = node.meta.get("val")
    operands = [values[a.name] if isinstance(a, fx.Node) else a for a in node.args]
    if isinstance(fake, int | torch.SymInt) and not any(map(_at_run_time, operands)):
        return symbols.size(fake)
    if isinstance(fake, float) or isinstance(fake, bool):
        return fake
    made = _computed(node.target, operands, build)
    if made is None:
        raise CaptureError(
            f"the forward computes {node.target} of a number known at run time only",
            where=where_of(node),
        )
    return RunTimeScalar(made)


def _at_run_time(value: Any) -> bool:
    return isinstance(value, RunTimeScalar)


def _read(tensor: Node, build: Builder) -> Node:
    """`.item()`: Python's float or int of the only element. It stops the gradient."""
    if tensor.type.dtype.is_float:
        tensor = detached(tensor, build)
    single = build.reshape(tensor, ())
    dtype = single.type.dtype
    if dtype is DType.BOOL:
        return single
    return build.cast(single, DType.F64 if dtype.is_float else DType.I64)


def detached(tensor: Node, build: Builder) -> Node:
    attrs = CallAttrs(
        "aten.detach.default", (Operand(0),), (), (tensor.type,), "it stops the gradient"
    )
    return build.arena.call((tensor,), attrs)


def _computed(target: Any, operands: list[Any], build: Builder) -> Node | None:
    if target is torch.sym_float:
        return _number(operands[0], DType.F64, build)
    if target is operator.neg:
        whole = _is_whole(operands[0])
        return build.op(Op.NEG, _number(operands[0], DType.I64 if whole else DType.F64, build))
    if _is_sqrt(target):
        return build.op(Op.SQRT, _number(operands[0], DType.F64, build))
    op = _BINARY.get(target)
    if op is None or len(operands) != 2:
        return None
    whole = all(map(_is_whole, operands)) and op in (Op.ADD, Op.SUB, Op.MUL)
    dtype = DType.I64 if whole else DType.F64
    return build.op(op, *(_number(value, dtype, build) for value in operands))


def _is_sqrt(target: Any) -> bool:
    return target is math.sqrt or getattr(target, "__name__", "") in ("sym_sqrt", "_sym_sqrt")


def _is_whole(value: Any) -> bool:
    if isinstance(value, RunTimeScalar):
        return not value.node.type.dtype.is_float
    return isinstance(value, int | Expr)


def _number(value: Any, dtype: DType, build: Builder) -> Node:
    if isinstance(value, RunTimeScalar):
        return build.cast(value.node, dtype)
    return build.const(value, dtype)
