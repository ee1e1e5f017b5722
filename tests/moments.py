"""Norms as capture writes them, and rows whose mean is hard to get right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.unit.plan.plans import BATCH, graph, tensor

from opweld.capture.build import Builder
from opweld.capture.ops.folds import centred, fold, squared, standardised
from opweld.ir.expr import Size
from opweld.ir.graph import Node, arena_of
from opweld.ir.ops import Op
from opweld.ir.types import DType
from opweld.plan.rows import Parallelism
from opweld.plan.single_pass import in_one_walk
from opweld.simplify import simplify

EPS = 1e-5
# The largest has no tidy sum: its multiples are rounded where they are added up.
CONSTANTS = (0.1, -1 / 3, 1e15 / 31, 7.77e22)
Outputs = tuple[Node, ...]


def _moments(build: Builder, x: Node, axes: tuple[int, ...]) -> Outputs:
    difference, mean = centred(build, x, axes)
    return mean, fold(build, Op.SUM, squared(build, difference), axes)


def norm(*shape: Size, axis: int = 1, dtype: DType = DType.F32, one_walk: bool = False) -> Outputs:
    """The normalised rows of x[s0, *shape] along an axis, their means, and their squares."""
    build = Builder()
    x = tensor(build.arena, "x", BATCH, *shape, dtype=dtype)
    normal, _, _ = standardised(build, x, (axis,), EPS)
    return _simplified((normal, *_moments(build, x, (axis,))), one_walk)


def mean_and_squares(
    *shape: Size, axis: int = 1, dtype: DType = DType.F32, one_walk: bool = False
) -> Outputs:
    """Of x[s0, *shape], which has no results of its elements."""
    build = Builder()
    x = tensor(build.arena, "x", BATCH, *shape, dtype=dtype)
    return _simplified(_moments(build, x, (axis,)), one_walk)


def mean_alone(*shape: Size, dtype: DType = DType.F32) -> Outputs:
    """Of x[s0, *shape] along axis 1."""
    build = Builder()
    return (fold(build, Op.MEAN, tensor(build.arena, "x", BATCH, *shape, dtype=dtype), (1,)),)


def _simplified(outputs: Outputs, one_walk: bool) -> Outputs:
    made = graph(*outputs)
    made = simplify(made, arena_of(made)).graph
    return (in_one_walk(made, Parallelism(held_elems=0)) if one_walk else made).outputs


def constant_rows(length: int, dtype: type = np.float32) -> np.ndarray:
    """Rows of one repeated value: the last is the largest whose sum is finite."""
    values = np.array([*CONSTANTS, np.finfo(np.float32).max / length / (1 + 1e-6)], dtype)
    return np.repeat(values[:, None], length, 1)


def far_rows(rows: int, length: int) -> np.ndarray:
    """Mean 1e6 and deviation 1."""
    rng = np.random.default_rng(length)
    return (rng.standard_normal((rows, length)) + 1e6).astype(np.float32)


def infinite_rows(length: int) -> np.ndarray:
    """Rows with an infinity at either end, with both, and with NaN."""
    rows = np.linspace(-1, 1, 4 * length, dtype=np.float32).reshape(4, length).copy()
    rows[0, 0], rows[1, -1], rows[2, [0, -1]], rows[3, 0] = (
        np.inf,
        -np.inf,
        (np.inf, -np.inf),
        np.nan,
    )
    return rows


def require_infinite(results: Iterator[np.ndarray]) -> None:
    """Of these: the means are what eager PyTorch says."""
    *_, means, _ = results
    for mean, wanted in zip(means, (np.inf, -np.inf, np.nan, np.nan), strict=True):
        np.testing.assert_array_equal(mean, np.full_like(mean, wanted))


def require_constant(x: np.ndarray, axis: int, results: Iterator[np.ndarray]) -> None:
    """Of constant rows: the mean is their value, and all that is left is exactly 0."""
    *normals, mean, squares = results
    np.testing.assert_array_equal(mean, np.take(x, [0], axis))
    for zeros in (*normals, squares):
        np.testing.assert_array_equal(zeros, np.zeros_like(zeros))


def require_exact(x: np.ndarray, axis: int, results: Iterator[np.ndarray]) -> None:
    """The mean is the float32 that is nearest the true one, the other results are as exact as they
    can be with it.
    """
    *normals, mean, squares = results
    wide = x.astype(np.float64)
    wanted = wide.mean(axis, keepdims=True)
    spacing = np.spacing(np.abs(wanted).astype(np.float32))
    assert np.max(np.abs(mean - wanted) / spacing) < 0.51
    square = np.square(wide - wanted).sum(axis, keepdims=True)
    nearest = wanted.astype(np.float32).astype(np.float64)
    off = x.shape[axis] * np.square(nearest - wanted)
    assert np.all(np.abs(squares - square) <= 2e-6 * square + off)
    for normal in normals:
        exact = (wide - nearest) / np.sqrt(squares / x.shape[axis] + EPS)
        np.testing.assert_allclose(normal, exact, rtol=2e-6, atol=1e-6)
