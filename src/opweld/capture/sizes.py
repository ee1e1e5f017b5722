"""torch's symbolic sizes as our size expressions; symbols are named by their place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from opweld.errors import CaptureError, Where
from opweld.ir.expr import Size, product, symbol
from opweld.ir.types import TensorType

from .dtypes import FROM_TORCH


class NotPolynomial(Exception):
    """A size that is no polynomial of the symbols; the model is then captured at fixed sizes."""


class DataDependentSize(Exception):
    """A size that depends on the elements of a tensor."""


def size_of_elements(where: Where | None) -> CaptureError:
    """What the user is told of one."""
    return CaptureError(
        "a tensor's size depends on the elements of another",
        where=where,
        next_step="compute all rows and choose with torch.where(mask, a, b), or keep the selection"
        " out of the forward",
    )


@dataclass(slots=True)
class Symbols:
    """torch's symbols in order of appearance: the first is named s0."""

    names: dict[str, str] = field(default_factory=dict)

    def size(self, value: Any) -> Size:
        """An int or a SymInt as a size. Raises NotPolynomial or DataDependentSize."""
        if isinstance(value, int):
            return value
        expression = value.node.shape_env.replace(value.node.expr)
        if free_unbacked_symbols(expression):
            raise DataDependentSize(str(expression))
        return self._convert(expression)

    def type(self, fake: torch.Tensor) -> TensorType | None:
        """The type of a fake tensor; None where its element type is none of ours."""
        dtype = FROM_TORCH.get(fake.dtype)
        if dtype is None:
            return None
        return TensorType(dtype, tuple(self.size(s) for s in fake.shape))

    def _convert(self, expression: sympy.Expr) -> Size:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            return symbol(self.names.setdefault(str(expression), f"s{len(self.names)}"))
        if expression.is_Add:
            return sum((self._convert(a) for a in _ordered(expression)), start=0)
        if expression.is_Mul:
            return product(self._convert(a) for a in _ordered(expression))
        if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
            return product([self._convert(expression.base)] * int(expression.exp))
        raise NotPolynomial(str(expression))


def _ordered(expression: sympy.Expr) -> list[sympy.Expr]:
    return sorted(expression.args, key=str)
