"""Vector norms, and distances made of them: one row per operator, with eager's gradients.

Where a norm is 0 its gradient is 0, though that of the root is infinite.
"""

from __future__ import annotations

import math
from typing import Any

from opweld.ir.graph import Node
from opweld.ir.ops import Op

from ..call import Call, Lower, NotFused
from .folds import Axes, axes_of, computed, fold, require_elements, returned, squared, zero_kept

# Below its eps a cosine similarity has another gradient, which only so small norms never show.
_LARGEST_EPS = 1e-6


def vector_norm(call: Call, x: Node, order: Any, axes: Axes) -> Node:
    """(sum |x| ^ order) ^ (1 / order) with size 1 for its axes; x is float32 or float64.

    Of one element it is |x|, as eager's, which overflows nowhere.
    """
    build = call.build
    if order > 0 and all(x.type.shape[axis] == 1 for axis in axes):
        return build.op(Op.ABS, x)
    if order == 2:
        return zero_kept(build, Op.SQRT, fold(build, Op.SUM, squared(build, x), axes))
    size = build.op(Op.ABS, x)
    if order in (math.inf, -math.inf):
        return fold(build, Op.AMAX if order > 0 else Op.AMIN, size, axes)
    if order == 1:
        return fold(build, Op.SUM, size, axes)
    if not order > 0:
        raise NotFused(f"a norm of order {order} is left to the library")
    power = build.const(order, x.type.dtype)
    # Below order 1 the derivative at 0 is infinite, and eager's is 0.
    powers = zero_kept(build, Op.POW, size, power) if order < 1 else build.op(Op.POW, size, power)
    root = build.const(1 / order, x.type.dtype)
    return zero_kept(build, Op.POW, fold(build, Op.SUM, powers, axes), root)


def _norm(call: Call, order: Any) -> Node:
    name = "self" if "self" in call.values else "A"
    x = computed(call.build, call.node(name), call.dtype)
    axes = axes_of(call, x)
    if order in (math.inf, -math.inf):
        require_elements(call, name, axes)
    return returned(call, vector_norm(call, x, order, axes))


def _vector_norm(call: Call) -> Node:
    return _norm(call, call.number("ord"))


def _linalg_norm(call: Call) -> Node:
    """A vector norm, unless two axes and an order ask for that of a matrix."""
    order, dim = call.values["ord"], call.values["dim"]
    rank = call.node("self").type.rank
    num_axes = rank if dim is None else 1 if isinstance(dim, int) else len(dim)
    if order is None or (order == "fro" and num_axes == 2):
        return _norm(call, 2)
    if num_axes != 1 or isinstance(order, str):
        raise NotFused("a norm of matrices is left to the library")
    return _norm(call, order)


def _matrix_norm(call: Call) -> Node:
    if call.values["ord"] != "fro":
        raise NotFused("a norm of matrices is left to the library")
    return _norm(call, 2)


def _old_norm(call: Call) -> Node:
    order = call.values["p"]
    return _norm(call, 2 if order is None else order)


def _dist(call: Call) -> Node:
    x, y = float_pair(call, "self", "other")
    difference = call.make(Op.SUB, x, y)
    axes = tuple(range(difference.type.rank))
    if call.number("p") in (math.inf, -math.inf):
        require_elements(call, "self", axes)
    return returned(call, vector_norm(call, difference, call.number("p"), axes))


def distance(call: Call, x: Node, y: Node, order: Any, eps: float) -> Node:
    """|x - y + eps| along the last axis, which stays with size 1."""
    shifted = call.make(Op.ADD, call.make(Op.SUB, x, y), call.const(eps, x.type.dtype))
    if order in (math.inf, -math.inf) and not isinstance(shifted.type.shape[-1], int):
        raise NotFused(f"{call.name} of what may have no elements is left to the library")
    return vector_norm(call, shifted, order, (shifted.type.rank - 1,))


def _pairwise_distance(call: Call) -> Node:
    x, y = float_pair(call, "x1", "x2")
    if max(x.type.rank, y.type.rank) == 0:
        raise NotFused("a distance of numbers is left to the library")
    return returned(call, distance(call, x, y, call.number("p"), call.number("eps")))


def _cosine_similarity(call: Call) -> Node:
    """The sum of x / |x| * y / |y|, the norms no less than eps."""
    x, y = float_pair(call, "x1", "x2")
    eps = call.number("eps")
    if eps > _LARGEST_EPS:
        raise NotFused("its gradient at norms below a large eps is the library's")
    rank = max(x.type.rank, y.type.rank)
    if rank == 0:
        raise NotFused("a similarity of numbers is left to the library")
    unit = [_unit(call, operand, eps, rank) for operand in (x, y)]
    product = call.make(Op.MUL, *unit)
    return returned(call, fold(call.build, Op.SUM, product, (call.dim(rank=rank),)))


def _unit(call: Call, x: Node, eps: float, rank: int) -> Node:
    if x.type.rank != rank:
        x = call.build.reshape(x, (*(1,) * (rank - x.type.rank), *x.type.shape))
    norm = vector_norm(call, x, 2, (call.dim(rank=rank),))
    return call.make(Op.DIV, x, call.make(Op.CLAMP_MIN, norm, call.const(eps, x.type.dtype)))


def float_pair(call: Call, *names: str) -> list[Node]:
    """Arguments in the type that kernels calculate with for the result's type.

    Integers are rounded to the result's type first; wider floats are not, as eager does not either.
    """
    if not call.dtype.is_float:
        raise NotFused(f"{call.name} of integers is left to the library")
    nodes = [call.node(name) for name in names]
    return [
        call.build.cast(node, call.dtype.compute)
        if node.type.dtype.is_float
        else computed(call.build, node, call.dtype)
        for node in nodes
    ]


DISTANCES: dict[str, Lower] = {
    "linalg_vector_norm": _vector_norm,
    "linalg_norm": _linalg_norm,
    "linalg_matrix_norm": _matrix_norm,
    "norm": _old_norm,
    "dist": _dist,
    "pairwise_distance": _pairwise_distance,
    "cosine_similarity": _cosine_similarity,
}
