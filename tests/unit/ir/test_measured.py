"""Shape classes: which sizes share one."""

from __future__ import annotations

import math

import pytest

from opweld.ir.measured import is_launchable, nearest_power
from opweld.ir.plan import PointwiseSchedule


@pytest.mark.parametrize(
    ("size", "exponent"),
    [(0, 0), (1, 0), (2, 1), (3, 2), (5, 2), (6, 3), (8, 3), (11, 3), (12, 4), (23, 5), (22, 4)],
)
def test_small_sizes(size: int, exponent: int) -> None:
    assert nearest_power(size) == exponent


@pytest.mark.parametrize("exponent", [4, 13, 26, 40])
def test_a_class_ends_halfway_between_powers_by_ratio(exponent: int) -> None:
    first_above = math.isqrt(2 ** (2 * exponent + 1)) + 1
    assert nearest_power(first_above - 1) == exponent
    assert nearest_power(first_above) == exponent + 1
    assert nearest_power(2**exponent) == exponent


@pytest.mark.parametrize(
    ("schedule", "can"),
    [
        ((4, 1, 128), True),
        ((1, 1, 1), True),
        ((64, 8, 1024), True),
        ((3, 1, 128), False),
        ((128, 1, 128), False),
        ((4, 0, 128), False),
        ((4, 9, 128), False),
        ((4, 1, 0), False),
        ((4, 1, 100), False),
        ((4, 1, 2048), False),
    ],
)
def test_what_a_kernel_can_have(schedule: tuple[int, int, int], can: bool) -> None:
    assert is_launchable(PointwiseSchedule(*schedule)) is can
