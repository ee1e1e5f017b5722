"""Scans: one row per operator, as eager computes them, and the forms in which users write others.

Reversed scans are written as flips before and after, and exclusive ones with an element of nothing
in front; both are one scan here.
"""

from __future__ import annotations

from opweld.ir.attrs import CastAttrs, CatAttrs, ScanAttrs, SliceAttrs
from opweld.ir.graph import Node
from opweld.ir.ops import Kind, Op
from opweld.ir.types import DType

from ..build import Builder
from ..call import Call, Lower, NotFused
from .folds import computed, float_operand, result_type

# What a scan that begins anew starts from.
_NOTHING = {Op.CUMSUM: 0, Op.CUMPROD: 1}


def _axis(call: Call) -> int:
    if not call.node("self").type.rank:
        raise NotFused(f"{call.name} of a single element is left to the library")
    return call.dim()


def _total(op: Op) -> Lower:
    """Sums and products, of the operand converted to the result's type."""

    def lower(call: Call) -> Node:
        if call.dtype is DType.BOOL:
            raise NotFused(f"{call.name} of type bool is left to the library")
        axis = _axis(call)
        x = _without_nothing(call.node("self"), axis, _NOTHING[op])
        exclusive = x is not None
        x = computed(call.build, call.node("self") if x is None else x, call.dtype)
        scanned = _scanned(call.build, op, x, ScanAttrs(axis, exclusive=exclusive))
        return call.build.cast(scanned, call.dtype)

    return lower


def _scanned(build: Builder, op: Op, x: Node, attrs: ScanAttrs) -> Node:
    if x.op in (Op.EXPAND, Op.CONST, Op.IOTA):
        raise NotFused("a scan of repeated elements is the library's")
    return build.op(op, x, attrs=attrs)


def _without_nothing(x: Node, axis: int, nothing: int) -> Node | None:
    """The operand of which `x` is all but the last element, behind one that is nothing."""
    if x.op is not Op.SLICE or not isinstance(x.attrs, SliceAttrs) or x.attrs.dim != axis:
        return None
    attrs, joined = x.attrs, x.inputs[0]
    if (attrs.start, attrs.step) != (0, 1):
        return None
    return _behind_nothing(joined, axis, nothing, attrs.length)


def _behind_nothing(joined: Node, axis: int, nothing: int, length: object) -> Node | None:
    """The second of two joined parts, of this length, where the first is one element of nothing,
    or what is padded so.
    """
    if joined.op is Op.PAD:
        inner, attrs = joined.inputs[0], joined.attrs
        in_front = tuple(int(dim == axis) for dim in range(joined.type.rank))
        alone = attrs.before == in_front and not any(size != 0 for size in attrs.after)
        fits = inner.type.shape[axis] == length and attrs.value == nothing
        return inner if alone and fits else None
    if joined.op is not Op.CAT or joined.attrs != CatAttrs(axis) or len(joined.inputs) != 2:
        return None
    first, second = joined.inputs
    fits = first.type.shape[axis] == 1 and second.type.shape[axis] == length
    return second if fits and _is_all(first, nothing) else None


def _is_all(node: Node, value: int) -> bool:
    while node.kind is Kind.VIEW and node.op in (Op.EXPAND, Op.RESHAPE, Op.SLICE):
        node = node.inputs[0]
    return node.op is Op.CONST and node.attrs.value == value


def _extremes(op: Op, place: Op) -> Lower:
    """cummax and cummin with their places. 16-bit values are compared as they would be stored."""

    def lower(call: Call) -> tuple[Node, ...]:
        x, axis = call.node("self"), _axis(call)
        values, places = call.fake
        kept = result_type(call, values).dtype
        if kept is DType.BOOL:
            x = call.build.cast(x, DType.U8)
        if kept.is_half:
            x = call.make(Op.CAST, x, attrs=CastAttrs(kept))
        x = call.build.cast(x, x.type.dtype.compute)
        scans = (_scanned(call.build, each, x, ScanAttrs(axis)) for each in (op, place))
        value, position = scans
        return call.build.cast(value, kept), call.build.cast(position, DType.I64)

    return lower


def _logcumsumexp(call: Call) -> Node:
    axis = _axis(call)
    x = float_operand(call, "self")
    scanned = _scanned(call.build, Op.LOGCUMSUMEXP, x, ScanAttrs(axis))
    return call.build.cast(scanned, call.dtype)


def flipped(build: Builder, x: Node, dims: tuple[int, ...]) -> Node | None:
    """The flip of a scan of a flip as one scan in reverse, or None where `x` is none.

    Casts between them stay: in 16 bits a scan is rounded once.
    """
    casts, scan = _behind_casts(x)
    if scan.kind is not Kind.SCAN or dims != (scan.attrs.axis,) or scan.attrs.reverse:
        return None
    inner_casts, flip = _behind_casts(scan.inputs[0])
    if flip.op is not Op.FLIP or flip.attrs.dims != dims or not _reverses(scan.op):
        return None
    operand = flip.inputs[0]
    for cast in inner_casts:
        operand = build.op(Op.CAST, operand, attrs=cast)
    attrs = ScanAttrs(scan.attrs.axis, reverse=True, exclusive=scan.attrs.exclusive)
    found = build.op(scan.op, operand, attrs=attrs)
    for cast in casts:
        found = build.op(Op.CAST, found, attrs=cast)
    return found


def _reverses(op: Op) -> bool:
    return op not in (Op.CUMMAX_PLACE, Op.CUMMIN_PLACE)


def _behind_casts(x: Node) -> tuple[list[CastAttrs], Node]:
    """The casts that end in `x`, the first of them first, and what they cast."""
    casts: list[CastAttrs] = []
    while x.op is Op.CAST:
        casts.insert(0, x.attrs)
        x = x.inputs[0]
    return casts, x


def joined(build: Builder, parts: list[Node], dim: int) -> Node | None:
    """All but the last element of a scan behind one of nothing as one scan, or None."""
    if len(parts) != 2 or parts[1].op is not Op.SLICE:
        return None
    first, (attrs, before) = parts[0], (parts[1].attrs, parts[1].inputs[0])
    casts, scan = _behind_casts(before)
    if scan.op not in _NOTHING or scan.attrs != ScanAttrs(dim) or attrs.dim != dim:
        return None
    whole = attrs.length + 1 == scan.type.shape[dim] and (attrs.start, attrs.step) == (0, 1)
    if not whole or first.type.shape[dim] != 1 or not _is_all(first, _NOTHING[scan.op]):
        return None
    found = build.op(scan.op, scan.inputs[0], attrs=ScanAttrs(dim, exclusive=True))
    for cast in casts:
        found = build.op(Op.CAST, found, attrs=cast)
    return found


SCANS: dict[str, Lower] = {
    "cumsum": _total(Op.CUMSUM),
    "cumprod": _total(Op.CUMPROD),
    "cummax": _extremes(Op.CUMMAX, Op.CUMMAX_PLACE),
    "cummin": _extremes(Op.CUMMIN, Op.CUMMIN_PLACE),
    "logcumsumexp": _logcumsumexp,
}
