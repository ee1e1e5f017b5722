"""What moves a sum of powers to another origin keeps more digits than the sum has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.device.programs import build_cpp

from opweld.device import pieces

MOVE = """
extern "C" void move(const float* sum, const float* rest, const float* from, const float* to,
                     float* moved_sum, float* moved_rest, long n) {
  for (long i = 0; i < n; ++i) {
    const op::Compensated<float> moved = op::times_exp({sum[i], rest[i]}, from[i], to[i]);
    moved_sum[i] = moved.sum, moved_rest[i] = moved.rest;
  }
}
"""
Move = Callable[..., tuple[np.ndarray, np.ndarray]]


@pytest.fixture(scope="module")
def move(tmp_path_factory: pytest.TempPathFactory) -> Move:
    folder = tmp_path_factory.mktemp("times_exp")
    library, _ = build_cpp("\n".join([*pieces(["times_exp"], "cpp"), MOVE]), folder)

    def moved(*values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total, rest = np.empty_like(values[0]), np.empty_like(values[0])
        arrays = [ctypes.c_void_p(each.ctypes.data) for each in (*values, total, rest)]
        library.move(*arrays, ctypes.c_long(len(total)))
        return total, rest

    return moved


@pytest.mark.parametrize("spread", [1, 9, 39])
def test_it_is_right_beyond_the_last_digit(move: Move, spread: float) -> None:
    """exp of the rounded difference would be wrong by as many ulps as that is large."""
    rng = np.random.default_rng(0)
    start, to = rng.uniform(-spread, spread, (2, 50000)).astype(np.float32)
    whole = rng.uniform(1, 2, 50000)
    x = whole.astype(np.float32)
    total, rest = move(x, (whole - x).astype(np.float32), start, to)
    exact = whole * np.exp(start.astype(np.float64) - to)
    assert np.abs(total / exact - 1).max() < 2.0**-23
    assert np.abs((total.astype(np.float64) + rest) / exact - 1).max() < 2.0**-24.5


@pytest.mark.parametrize("ends", [(-np.inf, 1.0), (1.0, -np.inf), (200.0, 0.0), (-200.0, 0.0)])
def test_beyond_the_range(move: Move, ends: tuple[float, float]) -> None:
    start, to = (np.array([end], np.float32) for end in ends)
    total, rest = move(np.ones(1, np.float32), np.zeros(1, np.float32), start, to)
    assert (total[0], rest[0]) == (np.inf if ends[0] > ends[1] else 0, 0)


def test_no_number_stays_none(move: Move) -> None:
    one = np.ones(1, np.float32)
    assert np.isnan(move(one, one * 0, one * np.nan, one)[0]).all()
