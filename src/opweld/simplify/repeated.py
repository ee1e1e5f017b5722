"""Reductions of what is repeated along their axes: of one element each.

mean of x, .., x  =  x        sum of n times x  =  n x        largest of x, .., x  =  x
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.attrs import ShapeAttrs
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
    """`value` has each element once; `count` of them are reduced, added up if `adds`. Without the
    repeated axes its shape is `shape`, in which they are 1 where the reduction keeps them.
    """

    value: Node
    count: int
    adds: bool
    shape: tuple[Size, ...]


def repeated_of(node: Node) -> Repeated | None:
    """What a call reduces, if it is repeated elements alone."""
    if node.op is not Op.CALL or node.attrs.target not in (*_SAME, _SUM):
        return None
    operand, axes = node.inputs[0], node.attrs.arguments[1:2]
    if operand.op is not Op.EXPAND or not axes or not axes[0]:
        return None
    value, rank = operand.inputs[0], operand.type.rank
    places = {axis % rank for axis in axes[0]}
    aligned: tuple[Size, ...] = (*((1,) * (rank - value.type.rank)), *value.type.shape)
    count = product(operand.type.shape[axis] for axis in places)
    if any(aligned[axis] != 1 for axis in places) or not isinstance(count, int) or count == 0:
        return None
    if node.type.dtype is not operand.type.dtype:
        return None
    keeps = node.type.rank == rank
    shape = tuple(size for axis, size in enumerate(aligned) if keeps or axis not in places)
    return Repeated(value, count, node.attrs.target == _SUM, shape)


def _made(match: Match) -> Node:
    found = repeated_of(match.root)
    assert found is not None, "the condition holds"
    arena = match.arena
    made = arena.make(Op.RESHAPE, found.value, attrs=ShapeAttrs(found.shape))
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
