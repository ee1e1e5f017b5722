"""Convolutions whose windows lie side by side, as matrix products: a row of operand a has the
values of one patch, a row of operand b one filter. Of few channels the library has no fast kernel;
where there is none of ours either (other targets, 16x16x16 patches), their products make them.
"""

from __future__ import annotations

from itertools import chain

from ...ir.attrs import CallAttrs, CastAttrs, Operand, PermuteAttrs, ShapeAttrs, SliceAttrs
from ...ir.expr import product as product_of
from ...ir.graph import Arena, Node
from ...ir.kernels.convolution import Convolution
from ...ir.ops import Op
from ...ir.plan import Conditions, Sizes, number_at
from ...ir.types import DType, TensorType
from ...target import Target
from .joined import LEAST_CHANNELS
from .recognised import NoProduct
from .windows import convolution_of, is_convolution, mode_of, require_form

# Operations a second: of cuDNN's kernels (16x16 patches of 3 channels, 64 images of 224x224 into
# 768: 0.49 to 0.61 ms; H200, 2026-11-24), and of the split product with what it reads and packs.
_LIBRARY_RATE, _PRODUCT_RATE = 30e12, 200e12
# Of a product, which is one kernel more than the library's call: where less is gained, the host
# takes it.
_PRODUCT_US = 15.0


def gain_of_patches(call: Node, target: Target, conditions: Conditions) -> float:
    """Microseconds that a convolution saves as a product; 0 where it is none, or saves none."""
    if not target.products or conditions.autocast or not is_convolution(call):
        return 0.0
    if any(node.type.dtype is not DType.F32 for node in (call, *call.inputs)):
        return 0.0
    try:
        made = convolution_of(call)
    except NoProduct:
        return 0.0
    if not _are_side_by_side(made) or _has_kernel(call, made, target, conditions):
        return 0.0
    return max(_gain_us(call, made, target, conditions.sizes), 0.0)


def _are_side_by_side(made: Convolution) -> bool:
    """Whether windows of few channels touch and do not overlap, in a weight of fixed size."""
    kernel, dilated = made.weight.type.shape[2:], made.dilation
    return (
        not made.depthwise
        and not made.transposed
        and all(isinstance(size, int) for size in made.weight.type.shape)
        and number_at(made.windows.channels) < LEAST_CHANNELS
        and number_at(product_of(kernel)) > 1
        and made.stride == kernel
        and not any(made.padding)
        and all(step == 1 or size == 1 for size, step in zip(kernel, dilated, strict=True))
    )


def _has_kernel(call: Node, made: Convolution, target: Target, conditions: Conditions) -> bool:
    """Whether the kernels of convolutions take it, which pack no value twice either."""
    try:
        require_form(made, mode_of(call, made, target, conditions))
    except NoProduct:
        return False
    return True


def _gain_us(call: Node, made: Convolution, target: Target, sizes: Sizes) -> float:
    flops = number_at(made.windows.flops, sizes)
    read, written = (number_at(node.type.size_bytes, sizes) for node in (made.x, call))
    library, product = flops / _LIBRARY_RATE * 1e6, flops / _PRODUCT_RATE * 1e6
    moved = (2 * read + written) / target.copy_bytes_per_s * 1e6
    return library - product - moved - _PRODUCT_US


def as_product(arena: Arena, call: Node, x: Node, weight: Node, *bias: Node) -> Node:
    """The convolution `call` of `x`, whose channels are its second axis: with its channels last."""
    filters, channels, *kernel = weight.type.shape
    axes = range(len(kernel))
    for axis, size in enumerate(kernel):
        length, whole = x.type.shape[axis + 2], call.type.shape[axis + 2] * size
        if length != whole:
            x = arena.make(Op.SLICE, x, attrs=SliceAttrs(axis + 2, 0, 1, whole))
    out = call.type.shape[2:]
    parted = chain.from_iterable(zip(out, kernel, strict=True))
    x = arena.make(Op.RESHAPE, x, attrs=ShapeAttrs((x.type.shape[0], channels, *parted)))
    order = (0, *(2 + 2 * axis for axis in axes), 1, *(3 + 2 * axis for axis in axes))
    x = arena.make(Op.PERMUTE, x, attrs=PermuteAttrs(order))
    depth = product_of((channels, *kernel))
    rows = (x.type.shape[0], *out)
    x = arena.make(Op.RESHAPE, x, attrs=ShapeAttrs((*rows, depth)))
    x = arena.make(Op.CAST, x, attrs=CastAttrs(x.type.dtype))  # in memory of its own
    weight = arena.make(Op.RESHAPE, weight, attrs=ShapeAttrs((filters, depth)))
    operands = (x, weight, *bias)
    result = TensorType(call.type.dtype, (*rows, filters))
    places = tuple(Operand(index) for index in range(len(operands)))
    attrs = CallAttrs("aten.linear.default", places, (), (result,), call.attrs.reason)
    return arena.call(operands, attrs)
