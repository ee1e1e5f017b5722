"""Meanings that NumPy has no single function for. Arrays in, array out; attributes come last.

All follow PyTorch's definition of the operation, NaN, infinities and signed zeros included, as the
CPU build of torch 2.13 computes it. Left undefined, as there: floats outside the range of the
integer type that they are cast to, integer division and remainder by zero, shifts by less than
zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _like(x: Array, value: Any) -> Array:
    return np.asarray(value).astype(np.asarray(x).dtype)


def _is_integer(x: Array) -> bool:
    return bool(np.issubdtype(np.asarray(x).dtype, np.integer))


def cast_array(x: Array, dtype: Any) -> Array:
    """`x` converted to a NumPy type; NaN and infinities become what the conversion leaves."""
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def round_to_bfloat16(x: Array) -> Array:
    """float32 values rounded to the nearest bfloat16, ties to even, as float32."""
    bits = np.array(x, dtype=np.float32).view(np.uint32)
    rounded = np.asarray((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000))
    return np.where(np.isnan(x), x, rounded.view(np.float32)).astype(np.float32)


def sign(x: Array) -> Array:
    """-1, 0 or 1; 0 for NaN is PyTorch's answer, and -0.0 gives 0."""
    return _like(x, (x > 0).astype(np.int8) - (x < 0).astype(np.int8))


def reciprocal(x: Array) -> Array:
    return 1 / x


def rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def erf(x: Array) -> Array:
    return _like(x, _erf(x) if np.size(x) else x)


def erfc(x: Array) -> Array:
    return _like(x, _erfc(x) if np.size(x) else x)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def relu(x: Array) -> Array:
    return np.where(x < 0, np.zeros_like(x), x)


def gelu(x: Array) -> Array:
    """x * Phi(x), Phi the normal distribution function."""
    return x * 0.5 * (1 + erf(x * math.sqrt(0.5)))


def gelu_tanh(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + np.tanh(inner))


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def mish(x: Array) -> Array:
    return x * np.tanh(np.log1p(np.exp(x)))


def softsign(x: Array) -> Array:
    return x / (1 + np.abs(x))


def hardsigmoid(x: Array) -> Array:
    return np.minimum(np.maximum(x + 3, 0), 6) / 6


def hardswish(x: Array) -> Array:
    return x * np.minimum(np.maximum(x + 3, 0), 6) / 6


def logsigmoid(x: Array) -> Array:
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def tanhshrink(x: Array) -> Array:
    return x - np.tanh(x)


def round_half_even(x: Array) -> Array:
    return x if _is_integer(x) else np.rint(x)


def frac(x: Array) -> Array:
    return x - np.trunc(x)


def nan_to_num(x: Array, attrs: Any) -> Array:
    return np.nan_to_num(x, nan=attrs.nan, posinf=attrs.posinf, neginf=attrs.neginf)


def leaky_relu(x: Array, attrs: Any) -> Array:
    return np.where(x > 0, x, x * attrs.slope)


def elu(x: Array, attrs: Any) -> Array:
    negative = np.expm1(x * attrs.input_scale) * (attrs.alpha * attrs.scale)
    return np.where(x > 0, x * attrs.scale, negative)


def softplus(x: Array, attrs: Any) -> Array:
    scaled = x * attrs.beta
    return np.where(scaled > attrs.threshold, x, np.log1p(np.exp(scaled)) / attrs.beta)


def threshold(x: Array, attrs: Any) -> Array:
    return np.where(x <= attrs.threshold, _like(x, np.full_like(x, attrs.value)), x)


def hardtanh(x: Array, attrs: Any) -> Array:
    bounded = np.where(x < attrs.low, attrs.low, np.where(x > attrs.high, attrs.high, x))
    return _like(x, bounded)


def softshrink(x: Array, attrs: Any) -> Array:
    shrunk = np.where(x > attrs.lambd, x - attrs.lambd, x + attrs.lambd)
    return np.where(np.abs(x) <= attrs.lambd, x * 0, shrunk)


def hardshrink(x: Array, attrs: Any) -> Array:
    return np.where(np.abs(x) <= attrs.lambd, np.zeros_like(x), x)


def cast(x: Array, attrs: Any) -> Array:
    """The interpreter supplies the conversion: bfloat16 is no NumPy type."""
    return x


def div_floor(a: Array, b: Array) -> Array:
    return np.floor_divide(a, b)


def div_trunc(a: Array, b: Array) -> Array:
    if not _is_integer(a):
        return np.trunc(a / b)
    floored = np.floor_divide(a, b)
    inexact = floored * b != a
    return floored + _like(a, inexact & ((a < 0) != (b < 0)))


def power(x: Array, exponent: Array) -> Array:
    """PyTorch computes some scalar exponents as roots and products: pow(-inf, 0.5) is NaN."""
    if np.ndim(exponent) == 0 and not _is_integer(exponent):
        special = _SCALAR_POWERS.get(float(exponent))
        if special is not None:
            return special(x)
    if not _is_integer(exponent):
        return np.power(x, exponent)
    return np.where(exponent < 0, _integer_root(x, exponent), np.power(x, np.maximum(exponent, 0)))


def _integer_root(x: Array, exponent: Array) -> Array:
    """Integers to negative powers: 0, but for 1 and -1."""
    return _like(x, np.where(np.abs(x) == 1, np.where(exponent % 2 == 0, 1, x), 0))


_SCALAR_POWERS = {
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    -1.0: reciprocal,
    -2.0: lambda x: 1 / (x * x),
    0.5: np.sqrt,
    -0.5: rsqrt,
}


def clamp_min(x: Array, low: Array) -> Array:
    """The larger; `x` where they are equal (zeros of two signs are), NaN where either is."""
    return np.where((x >= low) | (x != x), x, low)


def clamp_max(x: Array, high: Array) -> Array:
    """The smaller; `x` where they are equal (zeros of two signs are), NaN where either is."""
    return np.where((x <= high) | (x != x), x, high)


def heaviside(x: Array, at_zero: Array) -> Array:
    """0 below zero and for NaN, 1 above, `at_zero` at zero."""
    return np.where(x == 0, at_zero, _like(at_zero, x > 0))


def xlogy(a: Array, b: Array) -> Array:
    return np.where(np.isnan(b), b, np.where(a == 0, np.zeros_like(a), a * np.log(b)))


def prelu(x: Array, weight: Array) -> Array:
    return np.where(x > 0, x, x * weight)


def shift_left(a: Array, b: Array) -> Array:
    return np.left_shift(a, b)


def shift_right(a: Array, b: Array) -> Array:
    return np.right_shift(a, b)


def lerp(a: Array, b: Array, weight: Array) -> Array:
    """PyTorch's form, exact at both ends: from the nearer end."""
    return np.where(np.abs(weight) < 0.5, a + weight * (b - a), b - (b - a) * (1 - weight))


def addcmul(a: Array, b: Array, c: Array) -> Array:
    """Rounded once in float32, as PyTorch's kernels have it."""
    wide = np.longdouble if np.issubdtype(np.result_type(a), np.floating) else np.result_type(a)
    return (np.asarray(a, wide) + np.asarray(b, wide) * c).astype(np.result_type(a))


def permute(x: Array, attrs: Any) -> Array:
    return np.transpose(x, attrs.dims)


def expand(x: Array, attrs: Any) -> Array:
    return np.broadcast_to(x, attrs.shape)


def reshape(x: Array, attrs: Any) -> Array:
    return np.reshape(x, attrs.shape)


def slice_axis(x: Array, attrs: Any) -> Array:
    index = attrs.start + attrs.step * np.arange(attrs.length)
    return np.take(x, index, axis=attrs.dim)


def flip(x: Array, attrs: Any) -> Array:
    return np.flip(x, attrs.dims)


def pick(x: Array, index: Array, attrs: Any) -> Array:
    """Raises IndexError for a number that is none of an element."""
    size, place = x.shape[attrs.dim], np.asarray(index).astype(np.int64)
    if attrs.ignored is not None:
        place = np.where(place == attrs.ignored, 0, place)
    if attrs.wraps:
        place = np.where(place < 0, place + size, place)
    if np.any((place < 0) | (place >= size)):
        raise IndexError(f"an index is out of range for axis {attrs.dim} of {size}")
    wide = [max(a, b) if 0 not in (a, b) else 0 for a, b in zip(x.shape, place.shape, strict=True)]
    of_x, of_place = list(wide), list(wide)
    of_x[attrs.dim], of_place[attrs.dim] = size, place.shape[attrs.dim]
    wide_x, wide_place = np.broadcast_to(x, of_x), np.broadcast_to(place, of_place)
    return np.take_along_axis(wide_x, wide_place, attrs.dim)


def cat(*parts: Any) -> Array:
    *arrays, attrs = parts
    return np.concatenate(arrays, axis=attrs.dim)


def pad(x: Array, attrs: Any) -> Array:
    widths = list(zip(attrs.before, attrs.after, strict=True))
    return np.pad(x, widths, constant_values=attrs.value)


def window(x: Array, attrs: Any) -> Array:
    starts = attrs.step * np.arange(attrs.count)
    index = starts[:, None] + attrs.dilation * np.arange(attrs.width)
    return np.take(x, index, axis=attrs.dim)


def sum_of(x: Array, attrs: Any) -> Array:
    """Floats are added in float64 and rounded once."""
    dtype = np.float64 if np.issubdtype(x.dtype, np.floating) else x.dtype
    return np.sum(x, axis=attrs.axes, dtype=dtype, keepdims=True).astype(x.dtype)


def product_of(x: Array, attrs: Any) -> Array:
    """Floats are multiplied in float64 and rounded once."""
    dtype = np.float64 if np.issubdtype(x.dtype, np.floating) else x.dtype
    return np.prod(x, axis=attrs.axes, dtype=dtype, keepdims=True).astype(x.dtype)


def largest(x: Array, attrs: Any) -> Array:
    return np.max(x, axis=attrs.axes, keepdims=True)


def smallest(x: Array, attrs: Any) -> Array:
    return np.min(x, axis=attrs.axes, keepdims=True)


def mean_of(x: Array, attrs: Any) -> Array:
    """In float64, rounded once."""
    return np.mean(x, axis=attrs.axes, dtype=np.float64, keepdims=True).astype(x.dtype)


def sum_of_powers(x: Array, attrs: Any) -> Array:
    """exp(x - largest) in float64, added and rounded once."""
    wide: Array = x.astype(np.float64)
    powers = np.exp(wide - largest(wide, attrs))
    return np.sum(powers, axis=attrs.axes, keepdims=True).astype(x.dtype)


def sum_of_squared_deviations(x: Array, attrs: Any) -> Array:
    """(x - mean)^2 in float64, added and rounded once."""
    wide: Array = x.astype(np.float64)
    deviations = wide - np.mean(wide, axis=attrs.axes, keepdims=True)
    return np.sum(deviations * deviations, axis=attrs.axes, keepdims=True).astype(x.dtype)


def any_of(x: Array, attrs: Any) -> Array:
    return np.any(x, axis=attrs.axes, keepdims=True)


def all_of(x: Array, attrs: Any) -> Array:
    return np.all(x, axis=attrs.axes, keepdims=True)


def place_of_largest(x: Array, attrs: Any) -> Array:
    return _place_by(np.argmax, x, attrs.axes)


def place_of_smallest(x: Array, attrs: Any) -> Array:
    return _place_by(np.argmin, x, attrs.axes)


def _place_by(find: Any, x: Array, axes: tuple[int, ...]) -> Array:
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    flat = np.transpose(x, (*kept, *axes)).reshape(*(x.shape[axis] for axis in kept), -1)
    return np.expand_dims(find(flat, axis=-1).astype(np.int64), axes)


def cumulative_sum(x: Array, attrs: Any) -> Array:
    """Floats are added in float64, and each sum is rounded once."""
    return _accumulated(np.add, x, attrs)


def cumulative_product(x: Array, attrs: Any) -> Array:
    """Floats are multiplied in float64, and each product is rounded once."""
    return _accumulated(np.multiply, x, attrs)


def log_of_cumulative_powers(x: Array, attrs: Any) -> Array:
    """log(sum of exp), in float64."""
    return _accumulated(np.logaddexp, x, attrs)


def largest_so_far(x: Array, attrs: Any) -> Array:
    return _extremes_so_far(np.greater_equal, x, attrs)[0]


def smallest_so_far(x: Array, attrs: Any) -> Array:
    return _extremes_so_far(np.less_equal, x, attrs)[0]


def place_of_largest_so_far(x: Array, attrs: Any) -> Array:
    return _extremes_so_far(np.greater_equal, x, attrs)[1]


def place_of_smallest_so_far(x: Array, attrs: Any) -> Array:
    return _extremes_so_far(np.less_equal, x, attrs)[1]


def _accumulated(op: np.ufunc, x: Array, attrs: Any) -> Array:
    dtype = np.float64 if np.issubdtype(x.dtype, np.floating) else x.dtype
    along = _in_order(x.astype(dtype), attrs)
    if attrs.exclusive:
        along = np.concatenate([np.full_like(along[:1], op.identity), along[:-1]])
    found = op.accumulate(along, axis=0) if len(along) else along
    return _in_place(found, attrs).astype(x.dtype)


def _extremes_so_far(takes: np.ufunc, x: Array, attrs: Any) -> tuple[Array, Array]:
    """An element takes the place of the extreme before it unless that is NaN, or goes further."""
    along = _in_order(x, attrs)
    values, places = np.empty_like(along), np.empty(along.shape, np.int64)
    for k, later in enumerate(along):
        taken = (later != later) | takes(later, values[k - 1]) if k else np.ones(later.shape, bool)
        values[k] = np.where(taken, later, values[k - 1])
        places[k] = np.where(taken, k, places[k - 1])
    return _in_place(values, attrs), _in_place(places, attrs)


def _in_order(x: Array, attrs: Any) -> Array:
    """The elements as they come, along the first axis."""
    along = np.moveaxis(x, attrs.axis, 0)
    return along[::-1] if attrs.reverse else along


def _in_place(along: Array, attrs: Any) -> Array:
    return np.moveaxis(along[::-1] if attrs.reverse else along, 0, attrs.axis)
