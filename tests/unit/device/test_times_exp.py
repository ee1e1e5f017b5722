"""What moves a sum of powers to another origin is as exact as one rounding, or nearly."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.device.programs import build_cpp

from opweld.device import pieces

MOVE = """
extern "C" void move(const float* x, const float* from, const float* to, float* out, long n) {
  for (long i = 0; i < n; ++i) out[i] = op::times_exp(x[i], from[i], to[i]);
}
"""
Move = Callable[..., np.ndarray]


@pytest.fixture(scope="module")
def move(tmp_path_factory: pytest.TempPathFactory) -> Move:
    folder = tmp_path_factory.mktemp("times_exp")
    library, _ = build_cpp("\n".join([*pieces(["times_exp"], "cpp"), MOVE]), folder)

    def moved(*values: np.ndarray) -> np.ndarray:
        out = np.empty_like(values[0])
        arrays = [ctypes.c_void_p(each.ctypes.data) for each in (*values, out)]
        library.move(*arrays, ctypes.c_long(len(out)))
        return out

    return moved


@pytest.mark.parametrize("spread", [1, 9, 39])
def test_it_is_right_to_an_ulp(move: Move, spread: float) -> None:
    """exp of the rounded difference would be wrong by as many ulps as that is large."""
    rng = np.random.default_rng(0)
    start, to = rng.uniform(-spread, spread, (2, 50000)).astype(np.float32)
    x = rng.uniform(1, 2, 50000).astype(np.float32)
    exact = x * np.exp(start.astype(np.float64) - to)
    assert np.abs(move(x, start, to) / exact - 1).max() < 2.0**-23


@pytest.mark.parametrize("ends", [(-np.inf, 1.0), (1.0, -np.inf), (200.0, 0.0), (-200.0, 0.0)])
def test_beyond_the_range(move: Move, ends: tuple[float, float]) -> None:
    start, to = (np.array([end], np.float32) for end in ends)
    wanted = np.inf if ends[0] > ends[1] else 0
    assert move(np.ones(1, np.float32), start, to)[0] == wanted


def test_no_number_stays_none(move: Move) -> None:
    one = np.ones(1, np.float32)
    assert np.isnan(move(one, one * np.nan, one)).all()
