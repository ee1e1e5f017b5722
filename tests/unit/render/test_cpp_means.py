"""Means and variances as C++: constant rows have none, far means cost no digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tests.moments import (
    EPS,
    Outputs,
    constant_rows,
    far_rows,
    infinite_rows,
    mean_alone,
    mean_and_squares,
    norm,
    require_constant,
    require_exact,
    require_infinite,
)
from tests.reduction_kernels import run_reduction
from tests.unit.plan.plans import plan_of
from torch.nn.functional import layer_norm

from opweld.ir.expr import evaluate, symbol
from opweld.ir.kernels.reduction import Reduction
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.target import CPU

LENGTHS = (7, 31, 1000, 4096, 100003)
ANY_LENGTH, WIDTH = symbol("s1"), 4


@dataclass(frozen=True, slots=True)
class Way:
    """How rows are walked: in how many steps, and in how many pieces they are cut."""

    make: Callable[[int], Outputs]
    steps: int
    pieces: int = 1


WAYS = {
    "rows": Way(norm, 3),
    "rows of any length": Way(lambda length: norm(ANY_LENGTH), 3),
    "one walk": Way(lambda length: norm(ANY_LENGTH, one_walk=True), 2),
    "pieces": Way(lambda length: mean_and_squares(ANY_LENGTH, one_walk=True), 1, 3),
    "columns": Way(lambda length: norm(ANY_LENGTH, WIDTH), 3),
    "columns in one walk": Way(lambda length: norm(ANY_LENGTH, WIDTH, one_walk=True), 2),
    "columns in pieces": Way(
        lambda length: mean_and_squares(ANY_LENGTH, WIDTH, one_walk=True), 1, 3
    ),
}
each_way = pytest.mark.parametrize("name", WAYS)
each_length = pytest.mark.parametrize("length", LENGTHS)


def results(outputs: Outputs, x: np.ndarray, steps: int = 3, pieces: int = 1) -> list[np.ndarray]:
    """The normalised elements, where these are asked for, the means and the squares."""
    plan = plan_of(*outputs, target=CPU)
    (group,), (reduction,) = plan.groups, lower(plan)
    assert isinstance(reduction, Reduction) and len(reduction.contiguous.steps) == steps
    sizes = {"s0": len(x), "s1": x.shape[1]}
    shapes = [[evaluate(size, sizes) for size in node.type.shape] for node in group.outputs]
    reduction = replace(reduction, cut=pieces > 1)
    found = run_reduction(reduction, [x], sizes, shapes, pieces=pieces)
    return [found[group.outputs.index(node)] for node in outputs]


def of_way(name: str, rows: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The rows as they lie in memory, and what is made of them."""
    x = np.repeat(rows[:, :, None], WIDTH, 2) if "columns" in name else rows
    way = WAYS[name]
    return x, results(way.make(rows.shape[1]), x, way.steps, way.pieces)


@each_way
@each_length
def test_constant_rows_have_no_variance(name: str, length: int) -> None:
    x, found = of_way(name, constant_rows(length))
    require_constant(x, 1, found)


@each_way
@each_length
def test_a_mean_far_from_zero_is_the_nearest(name: str, length: int) -> None:
    x, found = of_way(name, far_rows(3, length))
    require_exact(x, 1, found)


@each_way
@each_length
def test_the_mean_of_infinite_rows_is_infinite(name: str, length: int) -> None:
    require_infinite(of_way(name, infinite_rows(length))[1])


@each_length
def test_the_mean_of_infinite_rows_of_double_is_infinite(length: int) -> None:
    x = infinite_rows(length).astype(np.float64)
    require_infinite(results(norm(length, dtype=DType.F64), x))


@each_length
def test_constant_rows_of_double(length: int) -> None:
    """Their sums are rounded, too."""
    x = np.repeat(np.array([[0.1], [1e15 / 31], [-1e200 / 3]]), length, 1)
    require_constant(x, 1, results(norm(length, dtype=DType.F64), x))


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("width", [(), (WIDTH,)], ids=["rows", "columns"])
def test_a_mean_without_squares(width: tuple[int, ...], dtype: DType, pieces: int) -> None:
    """It is told from the number of elements, of all pieces together."""
    rows = constant_rows(1000, np.float32 if dtype is DType.F32 else np.float64)
    x = np.repeat(rows[:, :, None], WIDTH, 2) if width else rows
    (mean,) = results(mean_alone(ANY_LENGTH, *width, dtype=dtype), x, 1, pieces)
    np.testing.assert_array_equal(mean, x[:, :1])


@each_length
def test_a_norm_is_as_exact_as_the_library(length: int) -> None:
    """The root mean square error of rows of mean 1e6."""
    x = far_rows(3, length)
    wide = torch.from_numpy(x).double()
    exact = layer_norm(wide, (length,), eps=EPS).numpy()
    eager = layer_norm(torch.from_numpy(x), (length,), eps=EPS).numpy()
    ours = results(norm(length), x)[0]
    errors = [np.sqrt(np.mean(np.square(each - exact))) for each in (ours, eager)]
    assert errors[0] <= 1.05 * errors[1] + 3e-8
