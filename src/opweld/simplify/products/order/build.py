"""The products of a chain, in an order that is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....ir.attrs import ReduceAttrs, ShapeAttrs
from ....ir.graph import Arena, Node
from ....ir.ops import Op
from ..linear import call_linear, call_matmul, swapped
from ..reasons import IN_ORDER
from .chain import Chain, Factor, Tree
from .cheapest import ends


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A node that is a matrix, or matrices, perhaps with the last two axes swapped."""

    node: Node
    transposed: bool

    def plain(self, arena: Arena) -> Node:
        return swapped(self.node, arena) if self.transposed else self.node

    def columns_first(self, arena: Arena) -> Node:
        return self.node if self.transposed else swapped(self.node, arena)


def in_order(chain: Chain, tree: Tree, arena: Arena) -> Node:
    """What the chain gives, multiplied in the order of `tree`."""
    return _Building(chain, arena).value(tree)


@dataclass(frozen=True, slots=True)
class _Building:
    chain: Chain
    arena: Arena

    def value(self, tree: Tree) -> Node:
        """The product of the value on the left with factors behind it, and what is added."""
        if isinstance(tree, int):
            return _Matrix(self._factor(0).node, self._factor(0).transposed).plain(self.arena)
        left, right = self.value(tree[0]), self._matrix(tree[1])
        first, last = ends(tree[1])
        made = self._product(left, right, self._shift(first, last))
        steps = self._factor(last).steps
        # Those behind the last product are beside it in the graph.
        whole = last == len(self.chain.factors) - 1
        return made if steps is None or whole else steps.of(made, self.arena)

    def _factor(self, idx: int) -> Factor:
        return self.chain.factors[idx]

    def _matrix(self, tree: Tree) -> _Matrix:
        """The product of factors that are not the first."""
        if isinstance(tree, int):
            return self._leaf(tree)
        left = self._scaled(self._matrix(tree[0]), ends(tree[0])[1])
        right, arena = self._matrix(tree[1]), self.arena
        if left.transposed and right.transposed:
            return _Matrix(self._matmul(right.node, left.node), True)
        return _Matrix(self._matmul(left.plain(arena), right.plain(arena)), False)

    def _leaf(self, idx: int) -> _Matrix:
        factor = self._factor(idx)
        if factor.node.type.rank > 1:
            return _Matrix(factor.node, factor.transposed)
        row = ShapeAttrs((1, *factor.node.type.shape))
        return _Matrix(self.arena.make(Op.RESHAPE, factor.node, attrs=row), True)

    def _scaled(self, matrix: _Matrix, last: int) -> _Matrix:
        """With its columns scaled as the steps behind factor `last` do."""
        steps = self._factor(last).steps
        scale = steps.pair(self.arena)[0] if steps is not None else None
        if scale is None:
            return matrix
        if scale.type.rank and matrix.transposed:
            shape = ShapeAttrs((*scale.type.shape, 1))
            scale = self.arena.make(Op.RESHAPE, scale, attrs=shape)
        return replace(matrix, node=self.arena.make(Op.MUL, matrix.node, scale))

    def _shift(self, first: int, last: int) -> Node | None:
        """What these factors, one by one, add to a value: a vector."""
        shift: Node | None = None
        for idx in range(first, last + 1):
            factor, arena = self._factor(idx), self.arena
            if shift is not None:
                row = arena.make(Op.RESHAPE, shift, attrs=ShapeAttrs((1, *shift.type.shape)))
                made = self._product(row, self._leaf(idx), factor.bias)
                shift = arena.make(Op.RESHAPE, made, attrs=ShapeAttrs((factor.columns,)))
            else:
                shift = factor.bias
            if idx < last and factor.steps is not None:
                shift = factor.steps.of_vector(shift, arena)
        return shift

    def _product(self, left: Node, right: _Matrix, bias: Node | None) -> Node:
        arena = self.arena
        if self.chain.batch is not None:
            return self._matmul(left, right.plain(arena))
        features, depth = right.columns_first(arena).type.shape
        if features == 1:
            flat = arena.make(Op.RESHAPE, right.node, attrs=ShapeAttrs((depth,)))
            terms = arena.make(Op.MUL, left, flat)
            made = arena.make(Op.SUM, terms, attrs=ReduceAttrs((left.type.rank - 1,)))
            return made if bias is None else arena.make(Op.ADD, made, bias)
        if bias is None and not right.transposed:
            return self._matmul(left, right.node)
        return call_linear(arena, left, right.columns_first(arena), bias, IN_ORDER)

    def _matmul(self, left: Node, right: Node) -> Node:
        return call_matmul(self.arena, left, right, IN_ORDER)
