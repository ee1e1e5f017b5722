"""The type of an operation's result, by those of its operands and its attributes.

Every rule takes the operands' types and the attributes, and raises TypeRule, or ShapeMismatch, for
what the operation does not take.
"""

from __future__ import annotations

from typing import Any

from .attrs import (
    CastAttrs,
    CatAttrs,
    GatherAttrs,
    ItemAttrs,
    PadAttrs,
    PermuteAttrs,
    ReduceAttrs,
    ScanAttrs,
    ShapeAttrs,
    SliceAttrs,
    WindowAttrs,
)
from .expr import product
from .types import DType, ShapeMismatch, TensorType, broadcast

INDEX_DTYPES = (DType.U8, DType.I32, DType.I64)


class TypeRule(ValueError):
    """Operands that an operation does not take."""


def same(types: tuple[TensorType, ...], _: Any) -> TensorType:
    return TensorType(one_dtype(types), broadcast(tuple(t.shape for t in types)))


def predicate(types: tuple[TensorType, ...], _: Any) -> TensorType:
    one_dtype(types)
    return TensorType(DType.BOOL, broadcast(tuple(t.shape for t in types)))


def where(types: tuple[TensorType, ...], _: Any) -> TensorType:
    if types[0].dtype is not DType.BOOL:
        raise TypeRule(f"the condition is {types[0].dtype.value}, not bool")
    return TensorType(one_dtype(types[1:]), broadcast(tuple(t.shape for t in types)))


def one_dtype(types: tuple[TensorType, ...]) -> DType:
    dtypes = {t.dtype for t in types}
    if len(dtypes) != 1:
        raise TypeRule(f"operands differ in dtype: {', '.join(t.dtype.value for t in types)}")
    return types[0].dtype


def cast(types: tuple[TensorType, ...], attrs: CastAttrs) -> TensorType:
    return TensorType(attrs.dtype, types[0].shape)


def reduce(types: tuple[TensorType, ...], attrs: ReduceAttrs) -> TensorType:
    (operand,) = types
    if not attrs.axes or list(attrs.axes) != sorted(set(attrs.axes) & set(range(operand.rank))):
        raise TypeRule(f"axes {attrs.axes} are no axes of rank {operand.rank}, in order")
    shape = tuple(1 if axis in attrs.axes else size for axis, size in enumerate(operand.shape))
    return TensorType(operand.dtype, shape)


def moment(types: tuple[TensorType, ...], attrs: ReduceAttrs) -> TensorType:
    if not types[0].dtype.is_float:
        raise TypeRule(f"the operand is {types[0].dtype.value}, not a float")
    return reduce(types, attrs)


def place(types: tuple[TensorType, ...], attrs: ReduceAttrs) -> TensorType:
    return TensorType(DType.I64, reduce(types, attrs).shape)


def truth(types: tuple[TensorType, ...], attrs: ReduceAttrs) -> TensorType:
    if types[0].dtype is not DType.BOOL:
        raise TypeRule(f"the operand is {types[0].dtype.value}, not bool")
    return reduce(types, attrs)


def scan(types: tuple[TensorType, ...], attrs: ScanAttrs) -> TensorType:
    if not 0 <= attrs.axis < types[0].rank:
        raise TypeRule(f"axis {attrs.axis} is no axis of rank {types[0].rank}")
    return types[0]


def scan_of_some(types: tuple[TensorType, ...], attrs: ScanAttrs) -> TensorType:
    if attrs.exclusive:
        raise TypeRule("the scan of no elements has no value")
    return scan(types, attrs)


def scan_of_floats(types: tuple[TensorType, ...], attrs: ScanAttrs) -> TensorType:
    if not types[0].dtype.is_float:
        raise TypeRule(f"the operand is {types[0].dtype.value}, not a float")
    return scan_of_some(types, attrs)


def scanned_place(types: tuple[TensorType, ...], attrs: ScanAttrs) -> TensorType:
    if attrs.reverse:
        raise TypeRule("places are counted as they are scanned")
    return TensorType(DType.I64, scan_of_some(types, attrs).shape)


def permute(types: tuple[TensorType, ...], attrs: PermuteAttrs) -> TensorType:
    if sorted(attrs.dims) != list(range(types[0].rank)):
        raise TypeRule(f"dims {attrs.dims} do not permute rank {types[0].rank}")
    return TensorType(types[0].dtype, tuple(types[0].shape[d] for d in attrs.dims))


def expand(types: tuple[TensorType, ...], attrs: ShapeAttrs) -> TensorType:
    if broadcast((types[0].shape, attrs.shape)) != attrs.shape:
        raise ShapeMismatch(f"{types[0]} does not expand to {attrs}")
    return TensorType(types[0].dtype, attrs.shape)


def reshape(types: tuple[TensorType, ...], attrs: ShapeAttrs) -> TensorType:
    if product(attrs.shape) != types[0].num_elems:
        raise ShapeMismatch(f"{types[0]} does not reshape to {attrs}")
    return TensorType(types[0].dtype, attrs.shape)


def slice(types: tuple[TensorType, ...], attrs: SliceAttrs) -> TensorType:
    shape = list(types[0].shape)
    shape[attrs.dim] = attrs.length
    return TensorType(types[0].dtype, tuple(shape))


def cat(types: tuple[TensorType, ...], attrs: CatAttrs) -> TensorType:
    shape = list(types[0].shape)
    shape[attrs.dim] = sum((t.shape[attrs.dim] for t in types[1:]), start=shape[attrs.dim])
    return TensorType(one_dtype(types), tuple(shape))


def pad(types: tuple[TensorType, ...], attrs: PadAttrs) -> TensorType:
    sizes = zip(types[0].shape, attrs.before, attrs.after, strict=True)
    return TensorType(types[0].dtype, tuple(size + a + b for size, a, b in sizes))


def window(types: tuple[TensorType, ...], attrs: WindowAttrs) -> TensorType:
    shape = types[0].shape
    parted = (*shape[: attrs.dim], attrs.count, attrs.width, *shape[attrs.dim + 1 :])
    return TensorType(types[0].dtype, parted)


def pick(types: tuple[TensorType, ...], attrs: GatherAttrs) -> TensorType:
    source, index = types
    if index.dtype not in INDEX_DTYPES:
        raise TypeRule(f"the index is {index.dtype.value}")
    if source.rank != index.rank or not 0 <= attrs.dim < source.rank:
        raise TypeRule(f"axis {attrs.dim} of ranks {source.rank} and {index.rank}")
    along = list(source.shape)
    along[attrs.dim] = index.shape[attrs.dim]
    return TensorType(source.dtype, broadcast((tuple(along), index.shape)))


def item(types: tuple[TensorType, ...], attrs: ItemAttrs) -> TensorType:
    return types[0]


def source(types: tuple[TensorType, ...], attrs: Any) -> TensorType:
    raise TypeRule("the type of a source is given, not inferred")
