"""Means and variances as CUDA text: constant rows have none, far means cost no digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from tests.emulation.reductions import Case, case, run
from tests.moments import (
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
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills

from opweld.ir.expr import symbol
from opweld.render.cuda.texts import cuda_text

LENGTHS = (7, 31, 1000, 4096, 100003)
ANY_LENGTH, WIDTH = symbol("s1"), 4


@dataclass(frozen=True, slots=True)
class Way:
    """How rows are walked: how many kept steps, and in how many pieces rows are cut."""

    make: Callable[[int], Outputs]
    steps: int
    lengths: tuple[int, ...] = LENGTHS
    axis: int = 1
    pieces: int = 1
    cut: bool = False
    shared_bytes: int | None = None


WAYS = {
    "registers": Way(norm, 3, LENGTHS[:4]),
    "shared memory": Way(norm, 3, (17000, 18432), shared_bytes=20 * 1024),
    "read again": Way(lambda length: norm(ANY_LENGTH), 3),
    "one walk": Way(lambda length: norm(ANY_LENGTH, one_walk=True), 2),
    "one walk of packets": Way(lambda length: norm(length, one_walk=True), 2, (4096, 100004)),
    "pieces": Way(
        lambda length: mean_and_squares(ANY_LENGTH, one_walk=True), 1, pieces=3, cut=True
    ),
    "columns": Way(lambda length: norm(ANY_LENGTH, WIDTH), 3),
    "columns in one walk": Way(lambda length: norm(ANY_LENGTH, WIDTH, one_walk=True), 2),
    "columns in pieces": Way(
        lambda length: mean_and_squares(ANY_LENGTH, WIDTH, one_walk=True), 1, pieces=3, cut=True
    ),
}
EACH = [(name, length) for name, way in WAYS.items() for length in way.lengths]


@cache
def case_of(name: str, length: int) -> Case:
    way = WAYS[name]
    found = case(f"way{list(WAYS).index(name)}", *way.make(length), cut=way.cut)
    assert len(found.reduction.contiguous.steps) == way.steps
    if way.shared_bytes is None:
        return found
    held = replace(found.reduction.contiguous, shared_bytes=way.shared_bytes)
    return replace(found, reduction=replace(found.reduction, contiguous=held))


def results(name: str, rows: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The rows as they lie in memory, and what is made of them."""
    length = rows.shape[1]
    x = np.repeat(rows[:, :, None], WIDTH, 2) if "columns" in name else rows
    found = case_of(name, length)
    sizes = {"s0": len(x), "s1": length}
    text = cuda_text((found.reduction,))
    return x, run(text, found, {"x": x}, sizes, pieces=WAYS[name].pieces)


@pytest.mark.parametrize(("name", "length"), EACH)
def test_constant_rows_have_no_variance(name: str, length: int) -> None:
    x, found = results(name, constant_rows(length))
    require_constant(x, 1, found)


@pytest.mark.parametrize(("name", "length"), EACH)
def test_a_mean_far_from_zero_is_the_nearest(name: str, length: int) -> None:
    x, found = results(name, far_rows(3, length))
    require_exact(x, 1, found)


@pytest.mark.parametrize(("name", "length"), EACH)
def test_the_mean_of_infinite_rows_is_infinite(name: str, length: int) -> None:
    require_infinite(results(name, infinite_rows(length))[1])


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("width", [(), (WIDTH,)], ids=["rows", "columns"])
def test_a_mean_without_squares(width: tuple[int, ...], pieces: int) -> None:
    """It is told from the number of elements, of all pieces together."""
    found = case(f"alone{len(width)}", *mean_alone(ANY_LENGTH, *width), cut=True)
    text = cuda_text((found.reduction,))
    for length in (7, 1000, 20003):
        rows = constant_rows(length)
        x = np.repeat(rows[:, :, None], WIDTH, 2) if width else rows
        (mean,) = run(text, found, {"x": x}, {"s0": len(x), "s1": length}, pieces=pieces)
        np.testing.assert_array_equal(mean, x[:, :1])


@needs_nvcc
def test_nvcc_takes_it_without_warnings_and_spills() -> None:
    makes = ("registers", "read again", "one walk", "pieces", "columns", "columns in one walk")
    require_no_spills(compile_cuda(cuda_text(tuple(case_of(m, 4096).reduction for m in makes))))
