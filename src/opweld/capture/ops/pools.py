"""Pooling: one row per operator. The windows of an input are a view; what is in one is condensed.

The axes of the places in a window come first, so that neighbours in memory are neighbouring
results. Formulas and limits are those of ATen's native/Pool.h and MaxPoolKernel.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opweld.ir.attrs import CastAttrs, IotaAttrs
from opweld.ir.graph import Node
from opweld.ir.numpy.interpret import NUMPY_DTYPES
from opweld.ir.ops import Op
from opweld.ir.types import DType

from ..build import Builder, Shape
from ..call import Call, Lower, NotFused
from .folds import Axes, float_operand, fold, last_axes, mean, returned

# So many elements a window are worth a kernel that one thread folds; what is larger is rare.
MOST_ELEMS = 4096


@dataclass(frozen=True, slots=True)
class Window:
    """How windows slide along an axis of `size` elements: `count` of them, `step` apart, each of
    `width` elements, `dilation` apart; the first begins `before` the first element.
    """

    size: int
    count: int
    step: int
    width: int
    before: int = 0
    dilation: int = 1

    @property
    def after(self) -> int:
        """How far the last window reaches behind the last element."""
        reach = (self.count - 1) * self.step + (self.width - 1) * self.dilation + 1
        return max(reach - self.before - self.size, 0)


@dataclass(frozen=True, slots=True)
class Windows:
    """`elems` are windows `along` the last axes of a tensor: what is in one lies along `axes`, and
    windows follow each other along `kept`.
    """

    elems: Node
    axes: Axes
    kept: Axes
    along: tuple[Window, ...]

    def spread(self, build: Builder, node: Node, axes: Axes) -> Node:
        """One number for each place along `axes`, in a shape that broadcasts to that of `elems`."""
        shape = self.elems.type.shape
        sized = (size if axis in axes else 1 for axis, size in enumerate(shape))
        return build.reshape(node, tuple(sized))


def windows(build: Builder, x: Node, along: Sequence[Window], outside: Any) -> Windows:
    """The windows that slide along the last axes of `x`; elements outside of it are `outside`."""
    first = x.type.rank - len(along)
    lead = (0,) * first
    before, after = (tuple(getattr(w, name) for w in along) for name in ("before", "after"))
    x = build.pad(x, (*lead, *before), (*lead, *after), outside)
    for place in reversed(range(len(along))):
        w = along[place]
        x = build.window(x, first + place, w.count, w.step, w.width, w.dilation)
    counts = tuple(first + 2 * place for place in range(len(along)))
    widths = tuple(axis + 1 for axis in counts)
    if along[-1].count == 1:  # the neighbours in memory are those in a window
        return Windows(x, widths, counts, tuple(along))
    x = build.permute(x, (*widths, *range(first), *counts))
    kept = range(x.type.rank - len(along), x.type.rank)
    return Windows(x, tuple(range(len(along))), tuple(kept), tuple(along))


# --- arguments ---


def _for_each(value: Any, count: int) -> list[int]:
    """One number for every axis, or one for all."""
    numbers = list(value) * (count if len(value) == 1 else 1)
    if len(numbers) != count or not all(type(n) is int for n in numbers):
        raise NotFused("windows of symbolic sizes are left to the library")
    return numbers


def _sizes(call: Call, shape: Shape, count: int) -> list[int]:
    sizes = shape[len(shape) - count :]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise NotFused(f"{call.name} along an axis of symbolic size is left to the library")
    return [int(str(size)) for size in sizes]


def _result_shape(call: Call) -> Shape:
    fake = call.fake[0] if isinstance(call.fake, tuple | list) else call.fake
    return tuple(call.symbols.size(size) for size in fake.shape)


def _sliding(call: Call, count: int) -> tuple[Window, ...]:
    """The windows that the arguments of a pooling name, along the last `count` axes."""
    widths = _for_each(call.values["kernel_size"], count)
    steps = _for_each(call.values["stride"] or widths, count)
    before = _for_each(call.values["padding"], count)
    dilations = [1] * count
    if "dilation" in call.values:
        dilations = _for_each(call.values["dilation"], count)
    call.values.get("ceil_mode")  # seen in the shape
    sizes = _sizes(call, call.node("self").type.shape, count)
    counts = _sizes(call, _result_shape(call), count)
    _require_small(call, widths)
    made = zip(sizes, counts, steps, widths, before, dilations, strict=True)
    return tuple(Window(*numbers) for numbers in made)


def _adaptive(call: Call, count: int) -> tuple[Window, ...]:
    """Windows side by side, where they are all of one width."""
    call.values.get("output_size")  # seen in the shape
    sizes = _sizes(call, call.node("self").type.shape, count)
    counts = _sizes(call, _result_shape(call), count)
    if any(size % number for size, number in zip(sizes, counts, strict=True)):
        raise NotFused("windows of several widths are the library's")
    widths = [size // number for size, number in zip(sizes, counts, strict=True)]
    if any(number > 1 for number in counts):
        _require_small(call, widths)
    made = zip(sizes, counts, widths, widths, strict=True)
    return tuple(Window(*numbers) for numbers in made)


def _require_small(call: Call, widths: list[int]) -> None:
    if math.prod(widths) > MOST_ELEMS:
        raise NotFused(f"{call.name} of more than {MOST_ELEMS} elements is left to the library")


# --- the largest ---


def _least(dtype: DType) -> Any:
    return -math.inf if dtype.is_float else int(np.iinfo(NUMPY_DTYPES[dtype]).min)


def _windows_of(call: Call, x: Node, along: tuple[Window, ...]) -> Windows:
    if x.type.dtype is DType.BOOL:
        raise NotFused(f"{call.name} of bool is left to the library")
    return windows(call.build, x, along, _least(x.type.dtype))


def _max_pool(count: int, arrange: Any = _sliding) -> Lower:
    def lower(call: Call) -> Node:
        x = call.node("self")
        parted = _windows_of(call, x, arrange(call, count))
        return returned(call, fold(call.build, Op.AMAX, parted.elems, parted.axes, first=True))

    return lower


def _max_pool_with_places(count: int, arrange: Any = _sliding) -> Lower:
    def lower(call: Call) -> tuple[Node, ...]:
        x, along = call.node("self"), arrange(call, count)
        parted = _windows_of(call, x, along)
        largest = fold(call.build, Op.AMAX, parted.elems, parted.axes, first=True)
        values, places = call.fake
        if x.type.dtype.is_half:
            # Compared as they would be stored.
            x = call.make(Op.CAST, x, attrs=CastAttrs(x.type.dtype))
            parted = _windows_of(call, x, along)
        place = _place_in_plane(call, parted)
        return returned(call, largest, values), returned(call, place, places)

    return lower


def _place_in_plane(call: Call, parted: Windows) -> Node:
    """The row-major position of the first largest element among those of the last axes."""
    along, place = parted.along, _place_in_window(call, parted)
    shape = place.type.shape
    if math.prod(w.size + w.before + w.after for w in along) >= 2**31:
        raise NotFused("places in a plane of more than 2^31 elements are left to the library")
    index, below = call.const(0, DType.I32), 1
    for axis, window in reversed(list(zip(parted.kept, along, strict=True))):
        place, within = _divided(call, place, window.width)
        found = _on_axis(call, parted, axis, window, within)
        index = call.make(Op.ADD, _times(call, found, below), index)
        below *= window.size
    return call.build.expand(call.build.cast(index, DType.I64), shape)


def _place_in_window(call: Call, parted: Windows) -> Node:
    """The first largest, but the last NaN where there is one, as eager finds it."""
    build, elems, axes = call.build, parted.elems, parted.axes
    place = build.cast(fold(build, Op.ARGMAX, elems, axes), DType.I32)
    if not elems.type.dtype.is_float:
        return place
    length = math.prod(window.width for window in parted.along)
    number = parted.spread(build, build.arena.iota(IotaAttrs(0, 1, length), DType.I32), axes)
    nothing = call.const(_least(DType.I32), DType.I32)
    at_nan = call.make(Op.WHERE, call.make(Op.ISNAN, elems), number, nothing)
    last = fold(build, Op.AMAX, at_nan, axes)
    is_there = call.make(Op.GE, last, call.const(0, DType.I32))
    return call.make(Op.WHERE, is_there, last, place)


def _divided(call: Call, number: Node, divisor: int) -> tuple[Node, Node]:
    """The quotient and the rest."""
    if divisor == 1:
        return number, call.const(0, DType.I32)
    whole = call.make(Op.DIV_TRUNC, number, call.const(divisor, DType.I32))
    return whole, call.make(Op.SUB, number, _times(call, whole, divisor))


def _times(call: Call, node: Node, factor: int) -> Node:
    return node if factor == 1 else call.make(Op.MUL, node, call.const(factor, DType.I32))


def _on_axis(call: Call, parted: Windows, axis: int, window: Window, within: Node) -> Node:
    """The coordinate of place `within` a window. Where all elements are the least there are, the
    place found may lie before the axis: eager names the first of the window that does not.
    """
    starts = IotaAttrs(-window.before, window.step, window.count)
    start = parted.spread(call.build, call.build.arena.iota(starts, DType.I32), (axis,))
    found = call.make(Op.ADD, start, _times(call, within, window.dilation))
    if window.before == 0:
        return found
    zero = call.const(0, DType.I32)
    if window.dilation == 1:
        return call.make(Op.CLAMP_MIN, found, zero)
    first = call.make(Op.REMAINDER, found, call.const(window.dilation, DType.I32))
    return call.make(Op.WHERE, call.make(Op.LT, found, zero), first, found)


# --- the mean ---


def _avg_pool(count: int) -> Lower:
    def lower(call: Call) -> Node:
        x, along = float_operand(call, "self"), _sliding(call, count)
        parted = windows(call.build, x, along, 0.0)
        total = fold(call.build, Op.SUM, parted.elems, parted.axes)
        return returned(call, call.make(Op.DIV, total, _divisor(call, parted)))

    return lower


def _divisor(call: Call, parted: Windows) -> Node:
    """The elements of a window that count: with the padding but not what lies behind it."""
    dtype = parted.elems.type.dtype
    override = call.values.get("divisor_override")
    padded = call.values["count_include_pad"]
    if override is not None:
        return call.const(override, dtype)
    every = [_numbers(window, padded) for window in parted.along]
    if all(len(set(numbers)) == 1 for numbers in every):
        return call.const(math.prod(numbers[0] for numbers in every), dtype)
    counts = [
        call.build.cast(_numbered(call, parted, axis, window, padded), dtype)
        for axis, window in zip(parted.kept, parted.along, strict=True)
    ]
    total = counts[0]
    for each in counts[1:]:
        total = call.make(Op.MUL, total, each)
    return total


def _numbers(window: Window, padded: bool) -> list[int]:
    """How many elements of each window along an axis count."""
    low, high = _limits(window, padded)
    starts = (k * window.step - window.before for k in range(window.count))
    return [min(start + window.width, high) - max(start, low) for start in starts]


def _numbered(call: Call, parted: Windows, axis: int, window: Window, padded: bool) -> Node:
    """The same as a tensor, from the position of each window."""
    numbers = _numbers(window, padded)
    if len(set(numbers)) == 1:
        return call.const(numbers[0], DType.I32)
    low, high = _limits(window, padded)
    starts = IotaAttrs(-window.before, window.step, window.count)
    start = parted.spread(call.build, call.build.arena.iota(starts, DType.I32), (axis,))
    stop = call.make(Op.ADD, start, call.const(window.width, DType.I32))
    stop = call.make(Op.CLAMP_MAX, stop, call.const(high, DType.I32))
    return call.make(Op.SUB, stop, call.make(Op.CLAMP_MIN, start, call.const(low, DType.I32)))


def _limits(window: Window, padded: bool) -> tuple[int, int]:
    """Between what positions elements count."""
    before = window.before if padded else 0
    return -before, window.size + before


def _adaptive_avg_pool(count: int) -> Lower:
    def lower(call: Call) -> Node:
        x = float_operand(call, "self")
        if all(size == 1 for size in call.shape[len(call.shape) - count :]):
            call.values.get("output_size")  # eager takes it as a mean
            return returned(call, mean(call.build, x, last_axes(x, count)))
        parted = windows(call.build, x, _adaptive(call, count), 0.0)
        return returned(call, mean(call.build, parted.elems, parted.axes))

    return lower


POOLS: dict[str, Lower] = {
    "max_pool1d": _max_pool(1),
    "max_pool2d": _max_pool(2),
    "max_pool3d": _max_pool(3),
    "max_pool1d_with_indices": _max_pool_with_places(1),
    "max_pool2d_with_indices": _max_pool_with_places(2),
    "max_pool3d_with_indices": _max_pool_with_places(3),
    "adaptive_max_pool1d": _max_pool_with_places(1, _adaptive),
    "adaptive_max_pool2d": _max_pool_with_places(2, _adaptive),
    "adaptive_max_pool3d": _max_pool_with_places(3, _adaptive),
    "avg_pool1d": _avg_pool(1),
    "avg_pool2d": _avg_pool(2),
    "avg_pool3d": _avg_pool(3),
    "adaptive_avg_pool1d": _adaptive_avg_pool(1),
    "adaptive_avg_pool2d": _adaptive_avg_pool(2),
    "adaptive_avg_pool3d": _adaptive_avg_pool(3),
}
