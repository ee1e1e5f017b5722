"""Numbers on which rules and meanings break first."""

from __future__ import annotations

import numpy as np

from opweld.ir.numpy.interpret import NUMPY_DTYPES
from opweld.ir.types import DType

FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 6.0, 0.25, 1.5, -1.5, 2.5, -2.5, 3.5,
    0.1, -0.1, 0.3, 0.7, 1 / 3, 20.0, -20.0, 88.0, -88.0, 100.0, -100.0, 1e-3, -1e-3, 12345.678,
)  # fmt: skip


def hard_floats(dtype: DType) -> np.ndarray:
    """NaN, infinities, zeros of both signs, subnormals, the largest, ties and 40 random values."""
    stored = NUMPY_DTYPES[dtype]
    info = np.finfo(np.float16 if dtype is DType.F16 else stored)
    edges = [np.nan, np.inf, -np.inf, info.max, -info.max, info.tiny, -info.tiny]
    edges += [info.smallest_subnormal, -info.smallest_subnormal, 1 + info.eps, 1 - info.eps]
    random = np.random.default_rng(7).normal(size=40) * 3
    return np.array([*edges, *FLOATS, *random]).astype(stored)


def hard_ints(dtype: DType) -> np.ndarray:
    """The ends of the range, their neighbours, zero and small numbers of both signs."""
    info = np.iinfo(NUMPY_DTYPES[dtype])
    values = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, 0, 1, 2, 3, 5, 7, 31]
    values += [v for v in (-1, -2, -3, -5, -7, -31) if v >= info.min]
    return np.array(values).astype(NUMPY_DTYPES[dtype])


def hard_values(dtype: DType) -> np.ndarray:
    if dtype is DType.BOOL:
        return np.array([False, True])
    return hard_floats(dtype) if dtype.is_float else hard_ints(dtype)


def hard_operands(count: int, dtype: DType) -> tuple[np.ndarray, ...]:
    """`count` one-dimensional arrays that hold every combination (every pair, if three)."""
    values = hard_values(dtype)
    if count < 3:
        grids = np.meshgrid(*[values] * count, indexing="ij")
        return tuple(grid.ravel() for grid in grids)
    left, right = hard_operands(2, dtype)
    shuffled = [np.random.default_rng(k).permutation(left) for k in range(count - 2)]
    return (left, right, *shuffled)
