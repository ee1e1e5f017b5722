"""torch's element types and ours."""

from __future__ import annotations

from typing import Any

import torch

from opweld.ir.types import DType

FROM_TORCH: dict[torch.dtype, DType] = {
    torch.bool: DType.BOOL,
    torch.uint8: DType.U8,
    torch.int8: DType.I8,
    torch.int16: DType.I16,
    torch.int32: DType.I32,
    torch.int64: DType.I64,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
    torch.float32: DType.F32,
    torch.float64: DType.F64,
    torch.complex64: DType.C64,
    torch.complex128: DType.C128,
}
TO_TORCH: dict[DType, torch.dtype] = {ours: theirs for theirs, ours in FROM_TORCH.items()}


def round_to(value: Any, dtype: DType) -> Any:
    """A Python number as an element of `dtype` holds it: eager may convert before it computes."""
    if not dtype.is_half or not isinstance(value, int | float):
        return value
    return torch.tensor(float(value), dtype=TO_TORCH[dtype]).item()


def largest(dtype: DType) -> float:
    """The largest finite element of a float type."""
    return torch.finfo(TO_TORCH[dtype]).max
