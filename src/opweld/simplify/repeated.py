"""Reductions of what is repeated along their axes: of one element each.

mean of x, .., x  =  x        sum of n times x  =  n x        largest of x, .., x  =  x
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.attrs import Operand, ShapeAttrs
from ..ir.expr import Size, product
from ..ir.graph import Node
from ..ir.ops import Kind, Op
from ..ir.rules.pattern import AnyOf, Computed, Match
from ..ir.rules.rewrite import Condition, Domain, Effect, Numerics, Rule
from .names import name_of

_SAME = ("aten.mean.dim", "aten.amax.default", "aten.amin.default")
_SUM = "aten.sum.dim_IntList"


@dataclass(frozen=True, slots=True)
class Repeated:
    """`value` has each element once; `count` of them are reduced, added up if `adds`."""

    value: Node
    count: int
    adds: bool


def repeated_of(node: Node) -> Repeated | None:
    """What a call reduces, if it is repeated elements alone."""
    if node.op is not Op.CALL or node.attrs.target not in (*_SAME, _SUM):
        return None
    first, *axes = node.attrs.arguments[:2]
    (operand, *others) = node.inputs
    if first != Operand(0) or others or operand.op is not Op.EXPAND or not axes or not axes[0]:
        return None
    rank = operand.type.rank
    places = {axis % rank for axis in ((axes[0],) if isinstance(axes[0], int) else axes[0])}
    value = operand.inputs[0]
    added = rank - value.type.rank
    repeats = all(a < added or value.type.shape[a - added] == 1 for a in places)
    sizes = [operand.type.shape[axis] for axis in places]
    if not repeats or node.type.dtype is not operand.type.dtype:
        return None
    counts = [size for size in sizes if isinstance(size, int) and size > 0]
    if len(counts) != len(sizes):
        return None
    kept: list[Size] = [size for a, size in enumerate(_aligned(value, rank)) if a not in places]
    if product(kept) != product(value.type.shape):
        return None
    return Repeated(value, int(product(counts)), node.attrs.target == _SUM)  # type: ignore[arg-type]


def _aligned(value: Node, rank: int) -> tuple[Size, ...]:
    return (*((1,) * (rank - value.type.rank)), *value.type.shape)


def _made(match: Match) -> Node:
    found = repeated_of(match.root)
    assert found is not None, "the condition holds"
    arena, root, operand = match.arena, match.root, match.root.inputs[0]
    aligned = _aligned(found.value, operand.type.rank)
    axes = match.root.attrs.arguments[1]
    places = {a % operand.type.rank for a in ((axes,) if isinstance(axes, int) else axes)}
    if root.type.rank == operand.type.rank:
        shape = aligned
    else:
        shape = tuple(size for axis, size in enumerate(aligned) if axis not in places)
    made = arena.make(Op.RESHAPE, found.value, attrs=ShapeAttrs(shape))
    if found.adds:
        made = arena.make(Op.MUL, made, arena.const(float(found.count), made.type.dtype))
    return made


def _effect(match: Match) -> Effect:
    found = repeated_of(match.root)
    assert found is not None, "the condition holds"
    name, op = name_of(found.value), match.root.attrs.target.split(".")[1]
    elems = product(match.root.inputs[0].type.shape)
    after = f"{found.count} * {name}" if found.adds else name
    size = match.root.type.dtype.itemsize_bytes
    left = product(match.root.type.shape) if found.adds else 0
    return Effect(f"{op} of {found.count} times {name}", after, elems, left, elems * size)


REPEATED: tuple[Rule, ...] = (
    Rule(
        "repeated-elements",
        AnyOf(Kind.OPAQUE, "x"),
        Computed("the element, or their number times it", _made),
        Numerics.REORDER,
        Condition(
            "x is a mean, a sum or an extreme along axes that an expand has made",
            lambda match: repeated_of(match.root) is not None,
        ),
        Domain.FLOAT,
        _effect,
    ),
)
