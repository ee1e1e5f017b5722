"""Losses: one row per operator, in eager's order (Loss.cpp)."""

from __future__ import annotations

from collections.abc import Callable

from opweld.ir.graph import Node
from opweld.ir.ops import Op

from ..call import Call, Lower, NotFused
from .classes import CLASS_LOSSES, cross_entropy_of_classes
from .distances import distance, float_pair
from .folds import MEAN, NONE, count, fold, mean, returned, squared
from .norms import log_softmax_of


def _condensed(call: Call, loss: Node) -> Node:
    """The losses as they are, their mean or their sum."""
    how = call.number("reduction")
    axes = tuple(range(loss.type.rank))
    if how == NONE:
        return returned(call, loss)
    if how == MEAN:
        return returned(call, mean(call.build, loss, axes))
    return returned(call, fold(call.build, Op.SUM, loss, axes))


def _loss(of: Callable[[Call, Node, Node], Node]) -> Lower:
    """A loss of each element and its target."""
    return lambda call: _condensed(call, of(call, *float_pair(call, "self", "target")))


def _number(call: Call, name: str, like: Node) -> Node:
    return call.const(call.number(name), like.type.dtype)


def _squared_error(call: Call, x: Node, y: Node) -> Node:
    return squared(call.build, call.make(Op.SUB, x, y))


def _absolute_error(call: Call, x: Node, y: Node) -> Node:
    return call.make(Op.ABS, call.make(Op.SUB, x, y))


def _bounded_parts(call: Call, x: Node, y: Node, limit: Node) -> tuple[Node, Node, Node]:
    """The error z, 0.5 * z * z by an error no larger than the limit, and half the limit.

    A square of the error itself would have no gradient where it overflows and is not taken.
    """
    error = _absolute_error(call, x, y)
    small = call.make(Op.CLAMP_MAX, error, limit)
    half = call.const(0.5, x.type.dtype)
    square = call.make(Op.MUL, call.make(Op.MUL, half, small), small)
    return error, square, call.make(Op.MUL, half, limit)


def _smooth_l1(call: Call, x: Node, y: Node) -> Node:
    if call.number("beta") == 0:
        return _absolute_error(call, x, y)
    beta = _number(call, "beta", x)
    error, square, half = _bounded_parts(call, x, y, beta)
    near = call.make(Op.LT, error, beta)
    return call.make(
        Op.WHERE, near, call.make(Op.DIV, square, beta), call.make(Op.SUB, error, half)
    )


def _huber(call: Call, x: Node, y: Node) -> Node:
    delta = _number(call, "delta", x)
    error, square, half = _bounded_parts(call, x, y, delta)
    far = call.make(Op.MUL, delta, call.make(Op.SUB, error, half))
    return call.make(Op.WHERE, call.make(Op.LE, error, delta), square, far)


def _kl_div(call: Call, x: Node, y: Node) -> Node:
    if call.values["log_target"]:
        return call.make(Op.MUL, call.make(Op.EXP, y), call.make(Op.SUB, y, x))
    return call.make(Op.SUB, call.make(Op.XLOGY, y, y), call.make(Op.MUL, y, x))


def _soft_margin(call: Call, x: Node, y: Node) -> Node:
    power = call.make(Op.MUL, call.make(Op.NEG, x), y)
    return call.make(Op.LOG1P, call.make(Op.EXP, power))


def _where(call: Call, comparison: Op, y: Node, value: int, chosen: Node) -> Node:
    """`chosen` where the target compares so with the value, 0 elsewhere."""
    dtype = y.type.dtype
    test = call.make(comparison, y, call.const(value, dtype))
    return call.make(Op.WHERE, test, chosen, call.const(0, dtype))


def _above_zero(call: Call, x: Node) -> Node:
    return call.make(Op.CLAMP_MIN, x, call.const(0, x.type.dtype))


def _hinge(call: Call, x: Node, y: Node) -> Node:
    margin = _above_zero(call, call.make(Op.SUB, _number(call, "margin", x), x))
    positive = _where(call, Op.NE, y, 1, margin)
    return call.make(Op.ADD, positive, _where(call, Op.NE, y, -1, x))


def _margin_ranking(call: Call) -> Node:
    x, other, y = float_pair(call, "input1", "input2", "target")
    signed = call.make(Op.MUL, call.make(Op.NEG, y), call.make(Op.SUB, x, other))
    shifted = call.make(Op.ADD, signed, _number(call, "margin", x))
    return _condensed(call, _above_zero(call, shifted))


def _logits(call: Call) -> Node:
    """(1 - y) * x - log(sigmoid(x)), the second weighted where y is 1."""
    x, y = float_pair(call, "self", "target")
    one = call.const(1, x.type.dtype)
    log = call.make(Op.LOGSIGMOID, x)
    if call.values["pos_weight"] is not None:
        extra = call.make(Op.SUB, *float_pair(call, "pos_weight"), one)
        log = call.make(Op.MUL, log, call.make(Op.ADD, call.make(Op.MUL, extra, y), one))
    loss = call.make(Op.SUB, call.make(Op.MUL, call.make(Op.SUB, one, y), x), log)
    if call.values["weight"] is not None:
        loss = call.make(Op.MUL, loss, *float_pair(call, "weight"))
    return _condensed(call, loss)


def _poisson(call: Call) -> Node:
    if call.values["full"]:
        raise NotFused("Stirling's term is left to the library")
    x, y = float_pair(call, "input", "target")
    eps = _number(call, "eps", x)
    if call.values["log_input"]:
        return _condensed(call, call.make(Op.SUB, call.make(Op.EXP, x), call.make(Op.MUL, y, x)))
    log = call.make(Op.LOG, call.make(Op.ADD, x, eps))
    return _condensed(call, call.make(Op.SUB, x, call.make(Op.MUL, y, log)))


def _cosine_embedding(call: Call) -> Node:
    x, other, y = float_pair(call, "input1", "input2", "target")
    axis = y.type.rank
    if max(x.type.rank, other.type.rank) != axis + 1 or x.type.rank != other.type.rank:
        raise NotFused("a cosine embedding of broadcast operands is left to the library")

    def dot(a: Node, b: Node) -> Node:
        total = fold(call.build, Op.SUM, call.make(Op.MUL, a, b), (axis,))
        return call.build.reshape(total, total.type.shape[:-1])

    eps = call.const(1e-12, x.type.dtype)
    sizes = [call.make(Op.ADD, dot(operand, operand), eps) for operand in (x, other)]
    cosine = call.make(Op.DIV, dot(x, other), call.make(Op.SQRT, call.make(Op.MUL, *sizes)))
    apart = call.make(Op.SUB, call.const(1, x.type.dtype), cosine)
    near = _above_zero(call, call.make(Op.SUB, cosine, _number(call, "margin", x)))
    positive = _where(call, Op.EQ, y, 1, apart)
    return _condensed(call, call.make(Op.ADD, positive, _where(call, Op.EQ, y, -1, near)))


def _triplet(call: Call) -> Node:
    anchor, positive, negative = float_pair(call, "anchor", "positive", "negative")
    order, eps = call.number("p"), call.number("eps")
    if anchor.type.rank == 0:
        raise NotFused("a distance of numbers is left to the library")
    near = distance(call, anchor, positive, order, eps)
    far = distance(call, anchor, negative, order, eps)
    if call.values["swap"]:
        swapped = distance(call, positive, negative, order, eps)
        far = call.make(Op.MINIMUM, far, swapped)
    shifted = call.make(Op.SUB, call.make(Op.ADD, near, _number(call, "margin", near)), far)
    return _condensed(call, _above_zero(call, shifted))


def _cross_entropy(call: Call) -> Node:
    """Of probabilities: -sum(log_softmax(x) * y * weight), over the number of rows for a mean."""
    x = call.node("self").type
    if not call.node("target").type.dtype.is_float:
        return cross_entropy_of_classes(call)
    if call.node("target").type.shape != x.shape:
        raise NotFused("probabilities of another shape are left to the library")
    logits, y = float_pair(call, "self", "target")
    call.values.get("ignore_index")  # for indices only
    axis = 1 if x.rank > 1 else 0
    y = _smoothed(call, y, axis)
    loss = call.make(Op.MUL, log_softmax_of(call, logits, (axis,)), y)
    if call.values["weight"] is not None:
        (weight,) = float_pair(call, "weight")
        along = (weight.type.num_elems, *(1,) * (x.rank - axis - 1))
        loss = call.make(Op.MUL, loss, call.build.reshape(weight, along))
    return _row_totals(call, loss, axis)


def _smoothed(call: Call, y: Node, axis: int) -> Node:
    smoothing = call.number("label_smoothing")
    if smoothing == 0:
        return y
    num_classes = y.type.shape[axis]
    if not isinstance(num_classes, int):
        raise NotFused("a symbolic number of classes is left to the library")
    dtype = y.type.dtype
    kept = call.make(Op.MUL, y, call.const(1 - smoothing, dtype))
    return call.make(Op.ADD, kept, call.const(smoothing / num_classes, dtype))


def _row_totals(call: Call, loss: Node, axis: int) -> Node:
    how = call.number("reduction")
    rank = loss.type.rank
    axes = (axis,) if how == NONE else tuple(range(rank))
    total = call.make(Op.NEG, fold(call.build, Op.SUM, loss, axes))
    if how == MEAN:
        rows = call.const(count(loss, tuple(a for a in axes if a != axis)), loss.type.dtype)
        total = call.make(Op.DIV, total, rows)
    return returned(call, total)


LOSSES: dict[str, Lower] = {
    "mse_loss": _loss(_squared_error),
    "l1_loss": _loss(_absolute_error),
    "smooth_l1_loss": _loss(_smooth_l1),
    "huber_loss": _loss(_huber),
    "kl_div": _loss(_kl_div),
    "soft_margin_loss": _loss(_soft_margin),
    "hinge_embedding_loss": _loss(_hinge),
    "margin_ranking_loss": _margin_ranking,
    "binary_cross_entropy_with_logits": _logits,
    "poisson_nll_loss": _poisson,
    "cosine_embedding_loss": _cosine_embedding,
    "triplet_margin_loss": _triplet,
    "cross_entropy_loss": _cross_entropy,
    **CLASS_LOSSES,
}
