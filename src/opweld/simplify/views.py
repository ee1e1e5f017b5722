"""Views that do nothing, and views of views."""

from __future__ import annotations

from ..ir.attrs import FlipAttrs, PermuteAttrs, ShapeAttrs, SliceAttrs
from ..ir.expr import Size, at_least_zero
from ..ir.graph import Node
from ..ir.ops import Kind, Op
from ..ir.rules.pattern import AnyOf, Computed, Match
from ..ir.rules.rewrite import Condition, Numerics, Rule
from .terms import cat, expand, flip, pad, permute, reshape, slice_axis, x

EXACT = Numerics.EXACT


def _keeps_type(match: Match) -> bool:
    return match.root.type == match.node("x").type


def _keeps_order(match: Match) -> bool:
    dims: tuple[int, ...] = match.attrs("p").dims
    return dims == tuple(range(len(dims)))


def _moves_only_ones(match: Match) -> bool:
    shape = match.node("x").type.shape
    moved = [dim for dim in match.attrs("p").dims if shape[dim] != 1]
    return moved == sorted(moved)


def _adds_only_ones(match: Match) -> bool:
    shape = match.root.type.shape
    added = len(shape) - match.node("x").type.rank
    return shape == (1,) * added + match.node("x").type.shape


def _flips_nothing(match: Match) -> bool:
    shape = match.node("x").type.shape
    return all(shape[dim] == 1 for dim in match.attrs("p").dims)


def _pads_nothing(match: Match) -> bool:
    attrs = match.attrs("p")
    return all(width == 0 for width in (*attrs.before, *attrs.after))


def _same_axis(match: Match) -> bool:
    first, second = match.attrs("p"), match.attrs("q")
    return bool(first.dim == second.dim)


def _shape_of_root(match: Match) -> ShapeAttrs:
    return ShapeAttrs(match.root.type.shape)


def _composed_dims(match: Match) -> PermuteAttrs:
    inner, outer = match.attrs("p").dims, match.attrs("q").dims
    return PermuteAttrs(tuple(inner[dim] for dim in outer))


def _composed_slice(match: Match) -> SliceAttrs:
    inner, outer = match.attrs("p"), match.attrs("q")
    start = inner.start + outer.start * inner.step
    return SliceAttrs(inner.dim, start, inner.step * outer.step, outer.length)


def _dims_flipped_once(match: Match) -> FlipAttrs:
    first, second = set(match.attrs("p").dims), set(match.attrs("q").dims)
    return FlipAttrs(tuple(sorted(first ^ second)))


def _part(match: Match) -> tuple[Node, SliceAttrs] | None:
    """Of the slice of a concatenation: the one part that it reads, and the slice of that part."""
    attrs, joined = match.root.attrs, match.root.inputs[0]
    if match.root.op is not Op.SLICE or joined.op is not Op.CAT or joined.attrs.dim != attrs.dim:
        return None
    start: Size = attrs.start
    for part in joined.inputs:
        size = part.type.shape[attrs.dim]
        last = start + (attrs.length - 1) * attrs.step
        if at_least_zero(start, {}) and at_least_zero(size - 1 - last, {}):
            return part, SliceAttrs(attrs.dim, start, attrs.step, attrs.length)
        start = start - size
    return None


def _reshaped(match: Match) -> tuple[int, Node] | None:
    """Of what is computed of the elements of one tensor and of numbers: which operand is that
    tensor, if it is a view of what has been computed, and splits or joins axes.
    """
    tensors = [place for place, node in enumerate(match.root.inputs) if node.op is not Op.CONST]
    if len(tensors) != 1 or match.root.type.shape != match.root.inputs[tensors[0]].type.shape:
        return None
    view = match.root.inputs[tensors[0]]
    if view.op is not Op.RESHAPE or view.inputs[0].kind not in (Kind.POINTWISE, Kind.REDUCTION):
        return None
    before, after = ([n for n in node.type.shape if n != 1] for node in (view.inputs[0], view))
    return (tensors[0], view.inputs[0]) if before != after else None


def _view_of_computed(match: Match) -> Node:
    found = _reshaped(match)
    assert found is not None, "the condition holds"
    place, own = found
    operands = list(match.root.inputs)
    operands[place] = own
    made = match.arena.make(match.root.op, *operands, attrs=match.root.attrs)
    return match.arena.make(Op.RESHAPE, made, attrs=ShapeAttrs(match.root.type.shape))


def _slice_of_part(match: Match) -> Node:
    found = _part(match)
    assert found is not None, "the condition holds"
    part, attrs = found
    return match.arena.make(Op.SLICE, part, attrs=attrs)


keeps_type = Condition("x has that type", _keeps_type)
whole_axis = Condition("it is the whole axis", _keeps_type)
keeps_order = Condition("p keeps the order", _keeps_order)
moves_only_ones = Condition("p moves axes of size 1 only", _moves_only_ones)
adds_only_ones = Condition("p adds axes of size 1 only", _adds_only_ones)
flips_nothing = Condition("the axes of p have size 1", _flips_nothing)
pads_nothing = Condition("the widths of p are 0", _pads_nothing)
of_one_reshaped = Condition(
    "it is of the elements of one reshape alone, which splits or joins axes of what is computed",
    lambda m: _reshaped(m) is not None,
)
in_one_part = Condition("it is a slice of cat, of one part", lambda m: _part(m) is not None)
same_axis = Condition("p and q have one axis", _same_axis)

root_shape = Computed("its shape", _shape_of_root)

IDENTITIES = (
    Rule("permute-identity", permute(x, attrs="p"), x, EXACT, keeps_order),
    Rule("reshape-identity", reshape(x, attrs="p"), x, EXACT, keeps_type),
    Rule("expand-identity", expand(x, attrs="p"), x, EXACT, keeps_type),
    Rule("slice-identity", slice_axis(x, attrs="p"), x, EXACT, whole_axis),
    Rule("flip-identity", flip(x, attrs="p"), x, EXACT, flips_nothing),
    Rule("pad-identity", pad(x, attrs="p"), x, EXACT, pads_nothing),
    Rule("cat-one", cat(x, attrs="p"), x, EXACT),
)
AS_RESHAPE = (
    Rule(
        "permute-ones", permute(x, attrs="p"), reshape(x, attrs=root_shape), EXACT, moves_only_ones
    ),
    Rule("expand-ones", expand(x, attrs="p"), reshape(x, attrs=root_shape), EXACT, adds_only_ones),
)
COMPOSED = (
    Rule(
        "permute-permute",
        permute(permute(x, attrs="p"), attrs="q"),
        permute(x, attrs=Computed("p then q", _composed_dims)),
        EXACT,
    ),
    Rule(
        "reshape-reshape", reshape(reshape(x, attrs="p"), attrs="q"), reshape(x, attrs="q"), EXACT
    ),
    Rule("expand-expand", expand(expand(x, attrs="p"), attrs="q"), expand(x, attrs="q"), EXACT),
    Rule(
        "slice-slice",
        slice_axis(slice_axis(x, attrs="p"), attrs="q"),
        slice_axis(x, attrs=Computed("p then q", _composed_slice)),
        EXACT,
        same_axis,
    ),
    Rule(
        "slice-cat",
        AnyOf(Kind.VIEW, "x"),
        Computed("the slice of that part", _slice_of_part),
        EXACT,
        in_one_part,
    ),
    Rule(
        "pointwise-reshape",
        AnyOf(Kind.POINTWISE, "x"),
        Computed("the reshape of what is computed so before it", _view_of_computed),
        EXACT,
        of_one_reshaped,
    ),
    Rule(
        "flip-flip",
        flip(flip(x, attrs="p"), attrs="q"),
        flip(x, attrs=Computed("p xor q", _dims_flipped_once)),
        EXACT,
    ),
)

VIEWS: tuple[Rule, ...] = (*IDENTITIES, *AS_RESHAPE, *COMPOSED)
