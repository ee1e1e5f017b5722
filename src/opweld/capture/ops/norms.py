"""Softmax and normalisations: one row per operator, in float32 for 16-bit types, as eager's."""

from __future__ import annotations

import torch

from opweld.ir.graph import Node
from opweld.ir.ops import Op

from ..build import Shape
from ..call import Call, Lower, NotFused
from ..dtypes import TO_TORCH
from .folds import (
    Axes,
    axes_of,
    centred,
    computed,
    count,
    float_operand,
    fold,
    last_axes,
    mean,
    require_elements,
    returned,
    squared,
    standardised,
)


def _operand(call: Call) -> tuple[Node, Axes]:
    call.values.get("half_to_float")  # seen in the type
    x = computed(call.build, call.node("self"), call.dtype)
    return x, axes_of(call, x)


def _largest(call: Call, x: Node, axes: Axes) -> Node:
    """max(x), less which powers of x do not overflow."""
    require_elements(call, "self", axes)
    return fold(call.build, Op.AMAX, x, axes)


def _softmax(call: Call) -> Node:
    x, axes = _operand(call)
    powers = call.make(Op.EXP, call.make(Op.SUB, x, _largest(call, x, axes)))
    total = fold(call.build, Op.SUM, powers, axes)
    return returned(call, call.make(Op.DIV, powers, total))


def log_softmax_of(call: Call, x: Node, axes: Axes) -> Node:
    """x - max(x) - log(sum(exp(x - max(x)))), of the argument `self` as x."""
    largest, total = log_total_of(call, x, axes)
    return call.make(Op.SUB, call.make(Op.SUB, x, largest), total)


def log_total_of(call: Call, x: Node, axes: Axes) -> tuple[Node, Node]:
    """max(x) and log(sum(exp(x - max(x)))), of the argument `self` as x."""
    largest = _largest(call, x, axes)
    powers = call.make(Op.EXP, call.make(Op.SUB, x, largest))
    return largest, call.make(Op.LOG, fold(call.build, Op.SUM, powers, axes))


def _log_softmax(call: Call) -> Node:
    return returned(call, log_softmax_of(call, *_operand(call)))


def _scaled(call: Call, x: Node, shape: Shape) -> Node:
    """x * weight + bias, both in `shape`, where they are given."""
    for name, op in (("weight", Op.MUL), ("bias", Op.ADD)):
        if call.values.get(name) is not None:
            operand = call.build.cast(call.node(name), x.type.dtype)
            x = call.make(op, x, call.build.reshape(operand, shape))
    return x


def _layer_norm(call: Call) -> Node:
    x = float_operand(call, "input")
    axes = last_axes(x, len(call.values["normalized_shape"]))
    call.values.get("cudnn_enable")
    result, _, _ = standardised(call.build, x, axes, call.number("eps"))
    return returned(call, _scaled(call, result, tuple(x.type.shape[axis] for axis in axes)))


def _rms_norm(call: Call) -> Node:
    x = float_operand(call, "input")
    axes = last_axes(x, len(call.values["normalized_shape"]))
    eps = call.values["eps"]
    if eps is None:
        eps = torch.finfo(TO_TORCH[x.type.dtype]).eps
    spread = mean(call.build, squared(call.build, x), axes)
    spread = call.make(Op.ADD, spread, call.const(eps, x.type.dtype))
    result = call.make(Op.MUL, x, call.make(Op.RSQRT, spread))
    return returned(call, _scaled(call, result, tuple(x.type.shape[axis] for axis in axes)))


def _group_norm(call: Call) -> Node:
    """Channels in groups of neighbours, each normalised over its channels and places."""
    x = float_operand(call, "input")
    call.values.get("cudnn_enabled")
    batch, channels, *places = x.type.shape
    groups = call.values["num_groups"]
    if not isinstance(channels, int):
        raise NotFused("a group norm of a symbolic number of channels is left to the library")
    members = channels // groups
    parted = call.build.reshape(x, (batch, groups, members, *places))
    axes = tuple(range(2, parted.type.rank))
    result, _, _ = standardised(call.build, parted, axes, call.number("eps"))
    result = _scaled(call, result, (groups, members, *(1 for _ in places)))
    return returned(call, result)


def _along_channels(x: Node) -> Shape:
    return (x.type.shape[1], *(1,) * (x.type.rank - 2))


def _all_but_channels(x: Node) -> Axes:
    return tuple(axis for axis in range(x.type.rank) if axis != 1)


def _instance_norm(call: Call) -> Node:
    if not call.values["use_input_stats"]:
        raise NotFused("an instance norm by running statistics is left to the library")
    x = float_operand(call, "input")
    for name in ("running_var", "momentum", "cudnn_enabled"):
        call.values.get(name)
    axes = tuple(range(2, x.type.rank))
    result, middle, _ = standardised(call.build, x, axes, call.number("eps"))
    if call.values["running_mean"] is not None:
        moments = middle, _unbiased(call, x, axes)
        call.towards.extend(mean(call.build, each, (0,)) for each in moments)
    return returned(call, _scaled(call, result, _along_channels(x)))


def _batch_norm(call: Call) -> tuple[Node, ...]:
    """Batch normalisation by the batch's own statistics, with no others kept."""
    if call.overload != "no_stats" or not call.values["training"]:
        raise NotFused("a batch norm with running statistics is left to the library")
    x = float_operand(call, "input")
    call.values.get("momentum")
    axes = _all_but_channels(x)
    result, middle, factor = standardised(call.build, x, axes, call.number("eps"))
    made = _scaled(call, result, _along_channels(x)), middle, factor
    return tuple(returned(call, n, fake) for n, fake in zip(made, call.fake, strict=True))


def _tracked_batch_norm(call: Call) -> tuple[Node, ...]:
    """The same, where running statistics go towards the batch's."""
    if not call.values["training"]:
        raise NotFused("a batch norm with running statistics is left to the library")
    x = float_operand(call, "input")
    for name in ("running_mean", "running_var", "momentum"):
        call.values.get(name)
    axes = _all_but_channels(x)
    result, middle, factor = standardised(call.build, x, axes, call.number("eps"))
    unbiased = _unbiased(call, x, axes)
    call.towards.extend((middle, unbiased))
    made = _scaled(call, result, _along_channels(x)), middle, factor, middle, unbiased
    return tuple(returned(call, n, fake) for n, fake in zip(made, call.fake, strict=True))


def _unbiased(call: Call, x: Node, axes: Axes) -> Node:
    """The variance by one element less."""
    if count(x, axes) == 1:
        raise NotFused("a norm of one element is left to the library")
    difference, _ = centred(call.build, x, axes)
    total = fold(call.build, Op.SUM, squared(call.build, difference), axes)
    return call.make(Op.DIV, total, call.const(count(x, axes) - 1, x.type.dtype))


NORMS: dict[str, Lower] = {
    "softmax": _softmax,
    "_softmax": _softmax,
    "log_softmax": _log_softmax,
    "_log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_functional": _tracked_batch_norm,
}
