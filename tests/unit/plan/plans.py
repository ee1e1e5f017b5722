"""Short ways to write graphs and to look at their plans."""

from __future__ import annotations

import numpy as np
from tests.unit.ir.graphs import BATCH, graph, tensor, weight

from opweld.ir.attrs import (
    CallAttrs,
    CatAttrs,
    FlipAttrs,
    Operand,
    PadAttrs,
    PermuteAttrs,
    ReduceAttrs,
    ScanAttrs,
    ShapeAttrs,
    SliceAttrs,
    WindowAttrs,
)
from opweld.ir.check import check
from opweld.ir.graph import Arena, Node
from opweld.ir.ops import Op
from opweld.ir.plan import Group, GroupKind, Plan
from opweld.ir.types import DType, TensorType
from opweld.plan import make_plan
from opweld.plan.fusion import fuse
from opweld.plan.uses import uses_of
from opweld.target import SM_90A, Target

__all__ = ["BATCH", "Make", "clusters_of", "graph", "kernels_of", "plan_of", "tensor", "weight"]


class Make:
    """Nodes of one arena: `m.exp(x)`, `m.add(x, y)`, `m.permute(x, 1, 0)`, `m.call(x)`."""

    def __init__(self) -> None:
        self.arena = Arena()

    def __getattr__(self, name: str):
        return lambda *inputs: self.arena.make(Op(name), *map(self._node, inputs))

    def _node(self, value: Node | float) -> Node:
        return value if isinstance(value, Node) else self.const(value)

    def const(self, value: float, dtype: DType = DType.F32) -> Node:
        return self.arena.const(value, dtype)

    def x(self, name: str, *shape, dtype: DType = DType.F32) -> Node:
        return tensor(self.arena, name, *shape, dtype=dtype)

    def w(self, path: str, *shape, **options) -> Node:
        return weight(self.arena, path, *shape, **options)

    def permute(self, x: Node, *dims: int) -> Node:
        return self.arena.make(Op.PERMUTE, x, attrs=PermuteAttrs(dims))

    def reshape(self, x: Node, *shape) -> Node:
        return self.arena.make(Op.RESHAPE, x, attrs=ShapeAttrs(shape))

    def expand(self, x: Node, *shape) -> Node:
        return self.arena.make(Op.EXPAND, x, attrs=ShapeAttrs(shape))

    def slice(self, x: Node, dim: int, start: int, length: int, step: int = 1) -> Node:
        return self.arena.make(Op.SLICE, x, attrs=SliceAttrs(dim, start, step, length))

    def flip(self, x: Node, *dims: int) -> Node:
        return self.arena.make(Op.FLIP, x, attrs=FlipAttrs(dims))

    def cat(self, dim: int, *parts: Node) -> Node:
        return self.arena.make(Op.CAT, *parts, attrs=CatAttrs(dim))

    def pad(
        self, x: Node, before: tuple[int, ...], after: tuple[int, ...], value: float = 0.0
    ) -> Node:
        return self.arena.make(Op.PAD, x, attrs=PadAttrs(before, after, value))

    def window(
        self, x: Node, dim: int, count: int, step: int, width: int, dilation: int = 1
    ) -> Node:
        return self.arena.make(Op.WINDOW, x, attrs=WindowAttrs(dim, count, step, width, dilation))

    def windows(
        self, x: Node, *along: tuple[int, int, int, int], outside: float | None = None
    ) -> Node:
        """Windows of the last axes, what is in one along the first axes: of each axis the width,
        the step, the padding on both sides (if there is any) and the dilation.
        """
        lead, num = x.type.rank - len(along), len(along)
        if outside is not None:
            widths = (*(0 for _ in range(lead)), *(padding for _, _, padding, _ in along))
            x = self.pad(x, widths, widths, outside)
        for axis in reversed(range(num)):
            width, step, _, dilation = along[axis]
            reach = (width - 1) * dilation + 1
            count = (int(str(x.type.shape[lead + axis])) - reach) // step + 1
            x = self.window(x, lead + axis, count, step, width, dilation)
        inside = [lead + 2 * axis + 1 for axis in range(num)]
        return self.permute(x, *inside, *range(lead), *(axis - 1 for axis in inside))

    def reduced(self, name: str, x: Node, *axes: int) -> Node:
        """`m.reduced("sum", x, 1)`; the axes keep size 1."""
        return self.arena.make(Op(name), x, attrs=ReduceAttrs(axes))

    def scanned(
        self, name: str, x: Node, axis: int, reverse: bool = False, exclusive: bool = False
    ) -> Node:
        """`m.scanned("cumsum", x, 1)`"""
        return self.arena.make(Op(name), x, attrs=ScanAttrs(axis, reverse, exclusive))

    def softmax(self, x: Node, axis: int) -> Node:
        e = self.exp(self.sub(x, self.reduced("amax", x, axis)))
        return self.div(e, self.reduced("sum", e, axis))

    def standardised(self, x: Node, *axes: int) -> Node:
        """(x - mean) / sqrt(variance + eps), by the variance of differences from the mean."""
        count = float(np.prod([x.type.shape[axis] for axis in axes]))
        centred = self.sub(x, self.div(self.reduced("sum", x, *axes), count))
        variance = self.div(self.reduced("sum", self.mul(centred, centred), *axes), count)
        return self.mul(centred, self.rsqrt(self.add(variance, 1e-5)))

    def call(self, *inputs: Node, target: str = "linear", draws: bool = False) -> Node:
        """A PyTorch call of the type of its first operand."""
        arguments = tuple(Operand(index) for index in range(len(inputs)))
        results, reason = (inputs[0].type,), "a product"
        attrs = CallAttrs(f"aten.{target}.default", arguments, (), results, reason, draws)
        return self.arena.call(inputs, attrs)

    def product(self, target: str, *inputs: Node, shape: tuple, **keywords: float) -> Node:
        """A call of `target` ("mm", "addmm") whose result has this shape."""
        arguments = tuple(Operand(index) for index in range(len(inputs)))
        result = TensorType(inputs[-1].type.dtype, shape)
        attrs = CallAttrs(
            f"aten.{target}.default", arguments, tuple(keywords.items()), (result,), "a product"
        )
        return self.arena.call(inputs, attrs)


def clusters_of(*outputs: Node) -> list[list[str]]:
    """The operations of each cluster."""
    clusters = fuse(uses_of(graph(*outputs)))
    return [[node.op.value for node in cluster.nodes] for cluster in clusters]


def plan_of(
    *outputs: Node,
    target: Target = SM_90A,
    excluded: frozenset[str] = frozenset(),
    suffix: str = "",
    origins=(),
) -> Plan:
    plan = make_plan(graph(*outputs, origins=origins), target, excluded, suffix)
    check(plan)
    return plan


def kernels_of(plan: Plan) -> tuple[Group, ...]:
    return tuple(group for group in plan.groups if group.kind is GroupKind.POINTWISE)
