"""Attention whose rows no tile holds, as two products and a softmax, each a kernel of its own.

Of rows so long a score costs more than writing and reading it: at 1024 values 4096 operations
against 12 bytes or so. The products run on the tensor cores as any others do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ...ir.attrs import (
    CallAttrs,
    CastAttrs,
    IotaAttrs,
    Operand,
    PermuteAttrs,
    ReduceAttrs,
    ShapeAttrs,
)
from ...ir.copying import Copier, give_origin
from ...ir.expr import product
from ...ir.graph import Arena, Graph, Node, Origin, arena_of, topological
from ...ir.kernels.attention import MOST_DEPTH
from ...ir.measured import NO_TABLE, Table
from ...ir.ops import Op
from ...ir.plan import Conditions, number_at
from ...ir.types import DType, TensorType, broadcast
from ...target import Target
from ..products.choice import is_ours
from .function import Arguments, arguments_of, is_function, masked
from .scores import LEAST_QUERIES, NoAttention

DTYPES = (DType.F32, DType.F16, DType.BF16)
MOST_SCORES = 4
"""The most that scores may take in memory, times what the operands and the result take."""


def in_two_products(
    graph: Graph, target: Target, conditions: Conditions, table: Table = NO_TABLE
) -> Graph:
    """The graph in which such calls of torch's function are products, a mask and a softmax, where
    this is no less exact: where kernels of ours make both products of float32, and scores of 16-bit
    operands, which they leave in float32.
    """
    known = target.products and not conditions.autocast
    chosen = [node for node in graph.nodes() if known and _is_long(node, conditions)]
    if not chosen:
        return graph
    parts = _Parts(arena_of(graph), dict(graph.origins), {n.serial for n in chosen})
    made = parts.of(graph)
    gain = all(is_ours(call, tail, target, conditions, table) for call, tail in parts.exact)
    return made if gain else graph


def _is_long(node: Node, conditions: Conditions) -> bool:
    if not is_function(node):
        return False
    try:
        given = arguments_of(node, DTYPES)
    except NoAttention:
        return False
    if node.type.dtype is DType.F32 and conditions.tf32:
        return False
    q, k, v = (x.type.shape for x in (given.q, given.k, given.v))
    if not any(isinstance(x, int) and x > MOST_DEPTH for x in (q[-1], v[-1])):
        return False
    same = len(q) == len(k) == len(v) and (not given.shares or q[-3] == k[-3] == v[-3])
    if not same or not isinstance(k[-2], int) or k[-2] == 0:
        return False
    if number_at(q[-2], conditions.sizes) < LEAST_QUERIES:
        return False
    scores = product((*node.type.shape[:-1], k[-2])) * DType.F32.itemsize_bytes
    memory = [x.type.size_bytes for x in (given.q, given.k, given.v, node)]
    most = MOST_SCORES * sum(number_at(size, conditions.sizes) for size in memory)
    return number_at(scores, conditions.sizes) <= most


@dataclass(slots=True)
class _Parts:
    """`chosen` has the serials of the calls; `exact` has the products made of them that must be
    kernels of ours, each with what comes after it.
    """

    arena: Arena
    origins: dict[int, Origin]
    chosen: set[int]
    exact: list[tuple[Node, list[Node]]] = field(default_factory=list)

    def of(self, graph: Graph) -> Graph:
        return Copier(self.arena, self._instead, self.origins).copied(graph)

    def _instead(self, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if node.serial not in self.chosen:
            return None
        call = self.arena.call(operands, node.attrs)
        given = arguments_of(call, DTYPES)
        products = self._product(given.q, self._turned(given.k))
        scores = self._scores(products, given)
        self.exact.append((products, _between(products, scores)))
        weights = self._softmax(scores, given.mask is not None)
        if weights.type.dtype is not given.v.type.dtype:
            weights = self.arena.make(Op.CAST, weights, attrs=CastAttrs(given.v.type.dtype))
        # Sums of 16-bit parts would be rounded to 16 bits.
        is_wide = given.v.type.dtype is DType.F32
        made = self._product(weights, given.v, summed_in_parts=is_wide)
        if is_wide:
            self.exact.append((made, []))
        give_origin(self.origins, node, call, made)
        return made

    def _scores(self, products: Node, given: Arguments) -> Node:
        scores = masked(products, given, self.arena)
        if not given.causal:
            return scores
        rows, keys = scores.type.shape[-2:]
        row = self.arena.iota(IotaAttrs(0, 1, rows), DType.I64)
        row = self.arena.make(Op.RESHAPE, row, attrs=ShapeAttrs((rows, 1)))
        key = self.arena.iota(IotaAttrs(0, 1, keys), DType.I64)
        counts = self.arena.make(Op.LE, key, row)
        return self.arena.make(Op.WHERE, counts, scores, self.arena.const(-math.inf, DType.F32))

    def _softmax(self, scores: Node, may_be_empty: bool) -> Node:
        """Over the last axis; a row for which no key counts is zeros."""
        make, attrs = self.arena.make, ReduceAttrs((scores.type.rank - 1,))
        zero, one, nothing = (self.arena.const(x, DType.F32) for x in (0.0, 1.0, -math.inf))
        largest = make(Op.AMAX, scores, attrs=attrs)
        if may_be_empty:
            largest = make(Op.WHERE, make(Op.EQ, largest, nothing), zero, largest)
        powers = make(Op.EXP, make(Op.SUB, scores, largest))
        total = make(Op.SUM, powers, attrs=attrs)
        if may_be_empty:
            total = make(Op.WHERE, make(Op.EQ, total, zero), one, total)
        return make(Op.DIV, powers, total)

    def _turned(self, k: Node) -> Node:
        *batch, row, column = range(k.type.rank)
        return self.arena.make(Op.PERMUTE, k, attrs=PermuteAttrs((*batch, column, row)))

    def _product(self, a: Node, b: Node, summed_in_parts: bool = False) -> Node:
        batch = broadcast((a.type.shape[:-2], b.type.shape[:-2]))
        shape = (*batch, a.type.shape[-2], b.type.shape[-1])
        attrs = CallAttrs(
            target="aten.matmul.default",
            arguments=(Operand(0), Operand(1)),
            keywords=(),
            results=(TensorType(a.type.dtype, shape),),
            reason="",
            summed_in_parts=summed_in_parts,
        )
        return self.arena.call((a, b), attrs)


def _between(first: Node, last: Node) -> list[Node]:
    """The operations down to the last node in which the first one has a part."""
    found = [first]
    for node in topological((last,)):
        if any(operand in found for operand in node.inputs):
            found.append(node)
    return found[1:]
