"""Reductions: one row per operator, in eager's order (ReduceOps.cpp), with its gradients."""

from __future__ import annotations

from opweld.ir.attrs import CastAttrs
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType

from ..call import Call, Lower, NotFused
from .folds import (
    Axes,
    axes_of,
    centred,
    computed,
    count,
    float_operand,
    fold,
    mean,
    require_elements,
    returned,
    squared,
    zero_kept,
)


def _total(op: Op) -> Lower:
    """Sums and products: of the operand converted to the result's type."""

    def lower(call: Call) -> Node:
        if call.dtype is DType.BOOL:
            raise NotFused(f"{call.name} of type bool is left to the library")
        x = computed(call.build, call.node("self"), call.dtype)
        return returned(call, fold(call.build, op, x, axes_of(call, x)))

    return lower


def _mean(call: Call) -> Node:
    x = computed(call.build, call.node("self"), call.dtype)
    return returned(call, mean(call.build, x, axes_of(call, x)))


def _nansum(call: Call) -> Node:
    x = computed(call.build, call.node("self"), call.dtype)
    if call.dtype.is_float:
        zero = call.const(0, x.type.dtype)
        x = call.make(Op.WHERE, call.make(Op.ISNAN, x), zero, x)
    return returned(call, fold(call.build, Op.SUM, x, axes_of(call, x)))


def _nanmean(call: Call) -> Node:
    x = computed(call.build, call.node("self"), call.dtype)
    axes = axes_of(call, x)
    is_nan = call.make(Op.ISNAN, x)
    zero, one = (call.const(number, x.type.dtype) for number in (0, 1))
    total = fold(call.build, Op.SUM, call.make(Op.WHERE, is_nan, zero, x), axes)
    number = fold(call.build, Op.SUM, call.make(Op.WHERE, is_nan, zero, one), axes)
    return returned(call, call.make(Op.DIV, total, number))


_ON_BOOL = {Op.AMAX: Op.ANY, Op.AMIN: Op.ALL}
_PLACES = {Op.AMAX: Op.ARGMAX, Op.AMIN: Op.ARGMIN}


def _extreme(call: Call, op: Op, axes: Axes, first: bool = False) -> Node:
    x = call.node("self")
    require_elements(call, "self", axes)
    chosen = _ON_BOOL[op] if x.type.dtype is DType.BOOL else op
    return fold(call.build, chosen, x, axes, first and chosen is op)


def _extremes(op: Op) -> Lower:
    """amax and amin, whose gradient all equal extremes share."""

    def lower(call: Call) -> Node:
        axes = axes_of(call, call.node("self"))
        return returned(call, _extreme(call, op, axes))

    return lower


def _selection(op: Op, elementwise: Op, on_bool: Op) -> Lower:
    """max and min: of all elements, of one axis with the places, or of two tensors."""

    def lower(call: Call) -> Node | tuple[Node, ...]:
        if call.overload == "other":
            chosen = on_bool if call.dtype is DType.BOOL else elementwise
            return call.make(chosen, call.operand("self"), call.operand("other"))
        axes = axes_of(call, call.node("self"))
        if call.overload != "dim":
            return returned(call, _extreme(call, op, axes))
        values, places = call.fake
        extreme = _extreme(call, op, axes, first=True)
        return returned(call, extreme, values), returned(call, _place(call, op, axes), places)

    return lower


def _aminmax(call: Call) -> tuple[Node, ...]:
    axes = axes_of(call, call.node("self"))
    return tuple(
        returned(call, _extreme(call, op, axes), fake)
        for op, fake in zip((Op.AMIN, Op.AMAX), call.fake, strict=True)
    )


def _place(call: Call, op: Op, axes: Axes) -> Node:
    """The position of the extreme. 16-bit values are compared as they would be stored."""
    x = call.node("self")
    require_elements(call, "self", axes)
    if x.type.dtype is DType.BOOL:
        x = call.build.cast(x, DType.U8)
    if x.type.dtype.is_half:
        x = call.make(Op.CAST, x, attrs=CastAttrs(x.type.dtype))
    if not axes:
        raise NotFused("the place of the only element is left to the library")
    return fold(call.build, _PLACES[op], x, axes)


def _places(op: Op) -> Lower:
    return lambda call: returned(call, _place(call, op, axes_of(call, call.node("self"))))


def _truth(call: Call) -> Node:
    x = call.node("self")
    dtype = x.type.dtype
    return x if dtype is DType.BOOL else call.make(Op.NE, x, call.const(0, dtype))


def _truths(op: Op) -> Lower:
    def lower(call: Call) -> Node:
        truth = _truth(call)
        return returned(call, fold(call.build, op, truth, axes_of(call, truth)))

    return lower


def _count_nonzero(call: Call) -> Node:
    ones = call.build.cast(_truth(call), DType.I64)
    return returned(call, fold(call.build, Op.SUM, ones, axes_of(call, ones)))


def _variance(call: Call, axes: Axes) -> tuple[Node, Node]:
    """The sum of squared differences to the mean by the degrees of freedom, and the mean.

    On the CPU eager takes both in float64 (ReduceOpsKernel.cpp, std_var_kernel_impl).
    """
    x = float_operand(call, "self")
    if call.fakes["self"].device.type == "cpu":
        x = call.build.cast(x, DType.F64)
    difference, middle = centred(call.build, x, axes)
    total = fold(call.build, Op.SUM, squared(call.build, difference), axes)
    return call.make(Op.DIV, total, _freedom(call, x, axes)), middle


def _freedom(call: Call, x: Node, axes: Axes) -> Node:
    correction = _correction(call)
    number = count(x, axes)
    if isinstance(number, int):
        return call.const(max(number - correction, 0), x.type.dtype)
    require_elements(call, "self", axes)
    if correction not in (0, 1):
        raise NotFused(f"a correction of {correction} is left to the library")
    return call.const(number - int(correction), x.type.dtype)


def _correction(call: Call) -> float:
    """Bessel's correction is the default."""
    if "unbiased" in call.values:
        return 1 if call.values["unbiased"] else 0
    return 1 if call.values["correction"] is None else call.number("correction")


def _var(call: Call) -> Node:
    return returned(call, _variance(call, axes_of(call, call.node("self")))[0])


def _std(call: Call) -> Node:
    variance, _ = _variance(call, axes_of(call, call.node("self")))
    return returned(call, zero_kept(call.build, Op.SQRT, variance))


def _var_mean(call: Call) -> tuple[Node, ...]:
    variance, middle = _variance(call, axes_of(call, call.node("self")))
    return returned(call, variance, call.fake[0]), returned(call, middle, call.fake[1])


def _std_mean(call: Call) -> tuple[Node, ...]:
    variance, middle = _variance(call, axes_of(call, call.node("self")))
    deviation = zero_kept(call.build, Op.SQRT, variance)
    return returned(call, deviation, call.fake[0]), returned(call, middle, call.fake[1])


def _logsumexp(call: Call) -> Node:
    x = float_operand(call, "self")
    axes = axes_of(call, x)
    require_elements(call, "self", axes)
    largest = fold(call.build, Op.AMAX, x, axes)
    infinite = call.make(Op.ISINF, largest)
    # Infinities would give NaN in the difference.
    shift = call.make(Op.WHERE, infinite, call.const(0, x.type.dtype), largest)
    powers = call.make(Op.EXP, call.make(Op.SUB, x, shift))
    total = fold(call.build, Op.SUM, powers, axes)
    return returned(call, call.make(Op.ADD, call.make(Op.LOG, total), shift))


REDUCTIONS: dict[str, Lower] = {
    "sum": _total(Op.SUM),
    "prod": _total(Op.PROD),
    "mean": _mean,
    "nansum": _nansum,
    "nanmean": _nanmean,
    "amax": _extremes(Op.AMAX),
    "amin": _extremes(Op.AMIN),
    "max": _selection(Op.AMAX, Op.MAXIMUM, Op.LOGICAL_OR),
    "min": _selection(Op.AMIN, Op.MINIMUM, Op.LOGICAL_AND),
    "aminmax": _aminmax,
    "argmax": _places(Op.AMAX),
    "argmin": _places(Op.AMIN),
    "any": _truths(Op.ANY),
    "all": _truths(Op.ALL),
    "count_nonzero": _count_nonzero,
    "var": _var,
    "std": _std,
    "var_mean": _var_mean,
    "std_mean": _std_mean,
    "logsumexp": _logsumexp,
}
