"""One call of the exported graph, seen by the rows that translate it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from opweld.ir.attrs import NO_ATTRS
from opweld.ir.expr import Expr, Size
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType, TensorType

from .build import Builder, Shape
from .dtypes import FROM_TORCH, round_to
from .sizes import Symbols


class NotFused(Exception):
    """The call stays a PyTorch call; the message is the sentence that the plan prints."""


@dataclass(frozen=True, slots=True)
class RunTimeScalar:
    """A Python number that is only known at run time: a rank-0 node, float64 or int64 or bool."""

    node: Node


class ReadArguments(dict[str, Any]):
    """Arguments by name, noting which were looked at."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


Result = Node | tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """`values` are the arguments by name in the operator's schema: nodes, numbers, sizes, lists.

    `fakes` are the same arguments as torch saw them; `fake` is torch's result. A norm that moves
    running statistics adds to `towards` the mean and the variance that they go to.
    """

    name: str
    overload: str
    build: Builder
    symbols: Symbols
    values: dict[str, Any]
    fakes: dict[str, Any]
    fake: Any
    towards: list[Node] = field(default_factory=list)

    @property
    def type(self) -> TensorType:
        """The type of the only result. Raises NotFused where we have no such type, or several."""
        if not isinstance(self.fake, torch.Tensor):
            raise NotFused(f"{self.name} has several results")
        type = self.symbols.type(self.fake)
        if type is None:
            raise NotFused(f"elements of type {self.fake.dtype} are not fused")
        return type

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    def node(self, name: str) -> Node:
        """A tensor argument as it is."""
        value = self.values[name]
        if not isinstance(value, Node):
            raise NotFused(f"the argument {name} of {self.name} is no tensor")
        return value

    def nodes(self, name: str) -> list[Node]:
        values = self.values[name]
        if not all(isinstance(value, Node) for value in values):
            raise NotFused(f"the argument {name} of {self.name} is no list of tensors")
        return list(values)

    def number(self, name: str) -> Any:
        """An argument that must be a plain Python number."""
        value = self.values[name]
        if not isinstance(value, int | float):
            raise NotFused(f"the argument {name} of {self.name} is no plain number")
        return value

    def is_number(self, name: str) -> bool:
        return isinstance(self.values[name], int | float)

    def operand(self, name: str, dtype: DType | None = None, rounded: bool = False) -> Node:
        """An argument as an operand of `dtype` (the result's, if not given).

        `rounded` is for operations where eager converts a Python number to the tensor's 16-bit type
        first; arithmetic takes it in float32.
        """
        dtype = dtype or self.dtype
        value = self.values[name]
        if isinstance(value, Node):
            return self.build.cast(value, dtype)
        if isinstance(value, RunTimeScalar):
            return self._run_time(value.node, dtype)
        if not isinstance(value, int | float | Expr):
            raise NotFused(f"the argument {name} of {self.name} is no number")
        return self.build.const(round_to(value, dtype) if rounded else value, dtype)

    def _run_time(self, node: Node, dtype: DType) -> Node:
        exact = self.build.cast(node, dtype.compute)
        return self.build.cast(exact, dtype)

    def common_dtype(self, *names: str) -> DType:
        """The type that the named arguments are promoted to. Raises NotFused if not ours."""
        _, dtype = elementwise_dtypes(
            *(_plain(self.fakes[name]) for name in names),
            type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT,
        )
        if dtype not in FROM_TORCH:
            raise NotFused(f"elements of type {dtype} are not fused")
        return FROM_TORCH[dtype]

    def make(self, op: Op, *nodes: Node, attrs: Any = NO_ATTRS) -> Node:
        return self.build.op(op, *nodes, attrs=attrs)

    def const(self, value: Any, dtype: DType | None = None) -> Node:
        return self.build.const(value, dtype or self.dtype)

    def size(self, name: str) -> Size:
        value = self.values[name]
        if not isinstance(value, int | Expr):
            raise NotFused(f"the argument {name} of {self.name} is known at run time only")
        return value

    def dim(self, name: str = "dim", rank: int | None = None) -> int:
        """An axis, counted from the front."""
        value = self.number(name)
        rank = self.node("self").type.rank if rank is None else rank
        return int(value) % max(rank, 1)


Lower = Callable[[Call], Result]


def _plain(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        return 1
    if isinstance(value, torch.SymFloat):
        return 1.0
    return True if isinstance(value, torch.SymBool) else value
