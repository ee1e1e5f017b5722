"""Tensors that the forward writes out as numbers, `torch.tensor([1.0, 2.0])`."""

from __future__ import annotations

from typing import Any

import torch

from opweld.ir.attrs import CallAttrs, IotaAttrs, TorchLiteral
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType, TensorType

from ..build import Builder
from ..dtypes import FROM_TORCH

# A vector of at most so many numbers is chosen by position inside a kernel.
_MAX_CHOSEN = 8


def constant(build: Builder, value: torch.Tensor, device: str) -> Node:
    """The node for a tensor of literals; `device` is the text of the expression for its device.

    One number, or one repeated, is a scalar; a short vector is chosen by position; anything longer
    is a call of torch.tensor.
    """
    dtype = FROM_TORCH[value.dtype]
    shape = tuple(value.shape)
    if dtype.is_complex:
        return _written(build, value, TensorType(dtype, shape), device)
    numbers = value.reshape(-1).tolist()
    if numbers and all(repr(n) == repr(numbers[0]) for n in numbers):
        return build.expand(build.const(numbers[0], dtype), shape)
    if len(shape) == 1 and 0 < len(numbers) <= _MAX_CHOSEN:
        return _chosen(build, numbers, dtype)
    return _written(build, value, TensorType(dtype, shape), device)


def _chosen(build: Builder, numbers: list[Any], dtype: DType) -> Node:
    position = build.arena.iota(IotaAttrs(0, 1, len(numbers)), DType.I64)
    node = build.const(numbers[-1], dtype)
    for index in range(len(numbers) - 2, -1, -1):
        here = build.op(Op.EQ, position, build.const(index, DType.I64))
        node = build.op(Op.WHERE, here, build.const(numbers[index], dtype), node)
    return node


def _written(build: Builder, value: torch.Tensor, type: TensorType, device: str) -> Node:
    attrs = CallAttrs(
        target="torch.tensor",
        arguments=(_nested(value.tolist()),),
        keywords=(("dtype", TorchLiteral(str(value.dtype))), ("device", TorchLiteral(device))),
        results=(type,),
        reason="a table of numbers written into the forward",
    )
    return build.arena.call((), attrs)


def _nested(numbers: Any) -> Any:
    return tuple(_nested(n) for n in numbers) if isinstance(numbers, list) else numbers
