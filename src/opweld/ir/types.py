"""Element types and tensor types."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .expr import Size, product


class DType(enum.Enum):
    """Element type of a tensor; the value is the name printed in every stage's text."""

    BOOL = "bool"
    U8 = "u8"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    # No kernel has these: they belong to what stays with PyTorch.
    C64 = "c64"
    C128 = "c128"

    @property
    def is_float(self) -> bool:
        return self.value.endswith(("f16", "f32", "f64"))

    @property
    def is_complex(self) -> bool:
        return self in (DType.C64, DType.C128)

    @property
    def is_half(self) -> bool:
        return self in (DType.F16, DType.BF16)

    @property
    def itemsize_bytes(self) -> int:
        digits = self.value.lstrip("abcfiuol")
        return int(digits) // 8 if digits else 1

    @property
    def compute(self) -> DType:
        """The type in which kernels calculate: float32 for 16-bit floats, as in eager."""
        return DType.F32 if self.is_half else self


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and sizes. A size is an int or an expression over symbols such as the batch
    size.

    Strides are no part of it: a kernel takes any, at run time (a contiguous and a strided variant).
    """

    dtype: DType
    shape: tuple[Size, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def num_elems(self) -> Size:
        return product(self.shape)

    @property
    def size_bytes(self) -> Size:
        return self.num_elems * self.dtype.itemsize_bytes

    def __str__(self) -> str:
        return f"{self.dtype.value}[{', '.join(map(str, self.shape))}]"


def contiguous_strides(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """Element strides of a row-major tensor of this shape."""
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))


class ShapeMismatch(ValueError):
    """Operands whose shapes do not broadcast."""


def broadcast(shapes: tuple[tuple[Size, ...], ...]) -> tuple[Size, ...]:
    """The common shape by NumPy's rules. Raises ShapeMismatch where there is none."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(_broadcast_size([s[axis] for s in padded]) for axis in range(rank))


def _broadcast_size(sizes: list[Size]) -> Size:
    wide = [size for size in sizes if size != 1]
    if any(size != wide[0] for size in wide):
        raise ShapeMismatch(f"sizes {', '.join(map(str, sizes))} do not broadcast")
    return wide[0] if wide else 1
