"""What scales and shifts the features of a value, each by its own numbers.

    f(y)_j = y_j * scale_j + shift_j

as the operations of eval batch norm, an affine layer, or a value beside itself (y + a y) write it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...ir.attrs import ShapeAttrs
from ...ir.expr import Size
from ...ir.graph import Arena, Node
from ...ir.ops import Op
from ...ir.rules.pattern import is_number

_STEPS = (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.NEG)
Pair = tuple[Node | None, Node | None]
"""A scale and a shift of a value, None for 0: numbers, or a vector of the features."""


@dataclass(frozen=True, slots=True)
class FeatureSteps:
    """`root` as f(core), whose features are along `axis`; `nodes` are those of f, operands first,
    `vectors` what it scales and shifts by beside numbers.
    """

    root: Node
    core: Node
    axis: int
    nodes: tuple[Node, ...]
    vectors: tuple[Node, ...]

    @property
    def features(self) -> Size:
        return self.core.type.shape[self.axis]

    def of(self, value: Node, arena: Arena) -> Node:
        """f of another value with these features along the same axis from the end."""
        made: dict[int, Node] = {self.core.serial: value}
        for node in self.nodes:
            operands = (made.get(operand.serial, operand) for operand in node.inputs)
            made[node.serial] = arena.make(node.op, *operands, attrs=node.attrs)
        return made[self.root.serial]

    def pair(self, arena: Arena) -> Pair:
        """The scale and the shift."""
        one = arena.const(1.0, self.core.type.dtype)
        pairs: dict[int, Pair] = {self.core.serial: (one, None)}
        for node in self.nodes:
            operands = [pairs.get(n.serial) or (None, self._flat(n, arena)) for n in node.inputs]
            pairs[node.serial] = _PAIRS[node.op](arena, *operands)
        return pairs[self.root.serial]

    def of_vector(self, vector: Node | None, arena: Arena) -> Node | None:
        """f of a vector of the features, None for 0, as such a vector; None where that is 0."""
        scale, shift = self.pair(arena) if self.nodes else (None, None)
        if vector is not None and scale is not None:
            vector = arena.make(Op.MUL, vector, scale)
        made = vector if shift is None else _added(arena, Op.ADD, vector, shift)
        if made is None or made.type.rank:
            return made
        return arena.make(Op.EXPAND, made, attrs=ShapeAttrs((self.features,)))

    def _flat(self, node: Node, arena: Arena) -> Node:
        if node.op is Op.CONST:
            return node
        size = node.type.shape[self.axis] if -self.axis <= node.type.rank else 1
        flat = arena.make(Op.RESHAPE, node, attrs=ShapeAttrs((size,)))
        if size == self.features:
            return flat
        return arena.make(Op.EXPAND, flat, attrs=ShapeAttrs((self.features,)))


def feature_steps(root: Node, axis: int) -> FeatureSteps:
    """The longest f behind a value whose features are along an axis, counted from the end; the
    identity where it is none of its operations.
    """
    nodes, vectors, cores = dict[int, Node](), dict[int, Node](), dict[int, Node]()
    waiting = [root]
    while waiting and len(cores) < 2:
        node = waiting.pop()
        if node.serial in nodes or _is_finite_number(node):
            continue
        if node is not root and _is_vector(node, root, axis):
            vectors[node.serial] = node
        elif node.op in _STEPS and node.type == root.type and not node.type.dtype.is_half:
            nodes[node.serial] = node
            waiting += node.inputs
        else:
            cores[node.serial] = node
    core = next(iter(cores.values())) if len(cores) == 1 else None
    found = tuple(nodes[serial] for serial in sorted(nodes))
    if core is None or core.type != root.type or not _is_linear(found, core):
        return FeatureSteps(root, root, axis, (), ())
    used = tuple(vectors[serial] for serial in sorted(vectors))
    return FeatureSteps(root, core, axis, found, used)


def _is_finite_number(node: Node) -> bool:
    return is_number(node) and math.isfinite(node.attrs.value)


def _is_vector(node: Node, root: Node, axis: int) -> bool:
    """Whether it has one number for each feature, or one for all."""
    shape = node.type.shape
    others = [s for place, s in enumerate(shape, -len(shape)) if place != axis]
    own = shape[axis] if -axis <= len(shape) else 1
    fits = own in (1, root.type.shape[axis]) and all(size == 1 for size in others)
    return fits and node.op is not Op.CONST and node.type.dtype is root.type.dtype


def _is_linear(nodes: tuple[Node, ...], core: Node) -> bool:
    """Whether no two values made of the core are multiplied, and none divides."""
    made = {core.serial}
    for node in nodes:
        of_core = [operand.serial in made for operand in node.inputs]
        if node.op is Op.MUL and all(of_core):
            return False
        if node.op is Op.DIV and of_core[1]:
            return False
        made.add(node.serial)
    return True


def _added(arena: Arena, op: Op, left: Node | None, right: Node | None) -> Node | None:
    if right is None:
        return left
    if left is None:
        return right if op is Op.ADD else arena.make(Op.NEG, right)
    return arena.make(op, left, right)


def _sum(op: Op) -> Callable[..., Pair]:
    def of(arena: Arena, left: Pair, right: Pair) -> Pair:
        return _added(arena, op, left[0], right[0]), _added(arena, op, left[1], right[1])

    return of


def _scaled(op: Op) -> Callable[..., Pair]:
    def of(arena: Arena, left: Pair, right: Pair) -> Pair:
        if op is Op.MUL and right[0] is not None:
            left, right = right, left
        factor = right[1]
        assert factor is not None, "a number or a vector"
        scale, shift = (None if n is None else arena.make(op, n, factor) for n in left)
        return scale, shift

    return of


def _negated(arena: Arena, pair: Pair) -> Pair:
    scale, shift = (None if n is None else arena.make(Op.NEG, n) for n in pair)
    return scale, shift


_PAIRS: dict[Op, Callable[..., Pair]] = {
    Op.ADD: _sum(Op.ADD),
    Op.SUB: _sum(Op.SUB),
    Op.MUL: _scaled(Op.MUL),
    Op.DIV: _scaled(Op.DIV),
    Op.NEG: _negated,
}
