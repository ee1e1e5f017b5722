"""Calls of torch's scaled_dot_product_attention, as a product, a scale, a mask and a softmax."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...ir.attrs import CallAttrs, CastAttrs, Operand
from ...ir.expr import Size, symbol
from ...ir.graph import Arena, Node
from ...ir.index import Coords, align
from ...ir.kernels.attention import INNER, KEY, ROW, Attention, Seen
from ...ir.kernels.product import Matrix, Product
from ...ir.ops import Op
from ...ir.types import DType, TensorType
from ...ir.views import behind_views
from .scores import NoAttention, Users, Walk, divided, in_memory, width

TARGET = "aten.scaled_dot_product_attention.default"


@dataclass(frozen=True, slots=True)
class Arguments:
    q: Node
    k: Node
    v: Node
    mask: Node | None
    causal: bool
    scale: float
    shares: bool


def is_function(node: Node) -> bool:
    return node.op is Op.CALL and node.attrs.target == TARGET


def of_function(call: Node, users: Users, arena: Arena) -> Attention | None:
    """The attention that a call of the function computes, None where it is no such call. The
    operations on scores are new nodes. Raises NoAttention.
    """
    if not is_function(call):
        return None
    given = arguments_of(call)
    shape = call.type.shape
    batch, heads, shared = _batch(given, shape)
    bounds: dict[str, Size] = {**dict(batch), ROW: shape[-2], KEY: given.k.type.shape[-2]}
    anchor, last = _scores(given, call, arena)
    row, key = (0 if bounds[name] == 1 else symbol(name) for name in (ROW, KEY))
    scores = Seen(last, (*heads, row, key))
    walk = Walk(bounds)
    walk.visit(scores)
    inner, operands = divided(walk, last, users, {call.serial})
    inside = symbol(INNER)
    q = Seen(given.q, (*align(heads, given.q.type.shape[:-2]), row, inside))
    k = Seen(given.k, (*align(shared, given.k.type.shape[:-2]), key, inside))
    v = Seen(given.v, (*align(shared, given.v.type.shape[:-2]), key, inside))
    return Attention(
        batch=batch,
        queries=shape[-2],
        keys=bounds[KEY],
        depth=width(q),
        columns=width(v),
        q=in_memory(q, bounds, ROW),
        k=in_memory(k, bounds, KEY),
        v=in_memory(v, bounds, KEY),
        out=(*heads, row, inside),
        scores=scores,
        anchor=anchor,
        product=Product(given.q, given.k, *(Matrix((), (), ()),) * 2),
        operands=tuple(behind_views(node) for node in operands if node is not anchor),
        inner=frozenset(inner),
        causal=given.causal,
        zeros=True,
    )


_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


def arguments_of(call: Node, dtypes: tuple[DType, ...] = (DType.F32,)) -> Arguments:
    """What a call of the function is given, all of one of these types. Raises NoAttention."""
    values = [*call.attrs.arguments, *(value for _, value in call.attrs.keywords)]
    names = [*_NAMES[: len(call.attrs.arguments)], *(name for name, _ in call.attrs.keywords)]
    found: dict[str, Any] = {
        name: call.inputs[value.index] if isinstance(value, Operand) else value
        for name, value in zip(names, values, strict=True)
    }
    q, k, v = (found[name] for name in _NAMES[:3])
    mask, scale = found.get("attn_mask"), found.get("scale")
    if call.type.dtype not in dtypes or len({node.type.dtype for node in (q, k, v, call)}) > 1:
        raise NoAttention(f"the library's kernels for {call.type.dtype.value} are faster")
    if found.get("dropout_p", 0.0) != 0.0:
        raise NoAttention("it draws random numbers")
    adds = (DType.BOOL, call.type.dtype)
    if mask is not None and (mask.type.dtype not in adds or mask.type.rank < 2):
        raise NoAttention("its mask is of another form")
    if any(node.op in (Op.CONST, Op.IOTA) for node in map(behind_views, (q, k, v))):
        raise NoAttention("an operand is a constant")
    depth = q.type.shape[-1]
    if scale is None and isinstance(depth, int) and depth > 0:
        scale = 1.0 / math.sqrt(depth)
    if not isinstance(scale, float | int):
        raise NoAttention("its scale is a size")
    return Arguments(
        q,
        k,
        v,
        mask,
        bool(found.get("is_causal", False)),
        float(scale),
        bool(found.get("enable_gqa", False)),
    )


def _batch(
    given: Arguments, shape: tuple[Size, ...]
) -> tuple[tuple[tuple[str, Size], ...], Coords, Coords]:
    """The variables of the batch, and coordinates by them for q and for k and v: where several
    heads of q share one of these, their axis is two.
    """
    loops: list[tuple[str, Size]] = []
    coords: list[Size] = []
    shared: list[Size] = []
    for axis, size in enumerate(shape[:-2]):
        own = given.k.type.shape[axis - len(shape)] if _is_heads(axis, shape, given) else size
        if own == size or own == 1:
            coords.append(0 if size == 1 else symbol(f"i{len(loops)}"))
            shared.append(coords[-1])
            loops += [(f"i{len(loops)}", size)] if size != 1 else []
            continue
        if not isinstance(size, int) or not isinstance(own, int) or size % own:
            raise NoAttention("its heads are of another number than a multiple of those of k")
        outer, inner = (f"i{len(loops) + more}" for more in range(2))
        loops += [(outer, own), (inner, size // own)]
        coords.append(symbol(outer) * (size // own) + symbol(inner))
        shared.append(symbol(outer))
    return tuple(loops), tuple(coords), tuple(shared)


def _is_heads(axis: int, shape: tuple[Size, ...], given: Arguments) -> bool:
    return given.shares and axis == len(shape) - 3


def _scores(given: Arguments, call: Node, arena: Arena) -> tuple[Node, Node]:
    """The product of q and k, and what the softmax takes."""
    shape = (*call.type.shape[:-2], given.q.type.shape[-2], given.k.type.shape[-2])
    attrs = CallAttrs(
        target="aten.matmul.default",
        arguments=(Operand(0), Operand(1)),
        keywords=(),
        results=(TensorType(DType.F32, shape),),
        reason="",
    )
    anchor = arena.call((given.q, given.k), attrs)
    return anchor, masked(anchor, given, arena)


def masked(products: Node, given: Arguments, arena: Arena) -> Node:
    """Scores in float32: the scaled products of q and k, under the mask."""
    products = wide(products, arena)
    scores = arena.make(Op.MUL, products, arena.const(given.scale, DType.F32))
    if given.mask is None:
        return scores
    if given.mask.type.dtype is DType.BOOL:
        nothing = arena.const(-math.inf, DType.F32)
        return arena.make(Op.WHERE, given.mask, scores, nothing)
    return arena.make(Op.ADD, scores, wide(given.mask, arena))


def wide(node: Node, arena: Arena) -> Node:
    """As float32."""
    is_wide = node.type.dtype is DType.F32
    return node if is_wide else arena.make(Op.CAST, node, attrs=CastAttrs(DType.F32))
