"""The margins are quantiles of two distributions, and freedom is found from draws."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from opweld.judge.numerics.statistics import (
    MARGINS,
    PROBABILITY,
    freedom,
    margins,
    rounding_margin,
    weighted,
)

NUM_STEPS = 4000


def quantile(tail: Callable[[float], float], probability: float) -> float:
    """Where a falling function reaches the probability, by bisection."""
    low, high = 1.0, 1e6
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if tail(middle) > probability else (low, middle)
    return low


def rms_tail(n: int, ratio: float) -> float:
    """P(F(n, n) > ratio^2): the incomplete beta function, by the midpoint rule in t = x u^4."""
    half, x = n / 2, 1 / (1 + ratio * ratio)
    log_beta = math.lgamma(n) - 2 * math.lgamma(half)
    total = 0.0
    for step in range(NUM_STEPS):
        u = (step + 0.5) / NUM_STEPS
        t = x * u**4
        density = math.exp(log_beta + (half - 1) * (math.log(t) + math.log1p(-t)))
        total += density * 4 * x * u**3 / NUM_STEPS
    return total


def max_tail(n: int, ratio: float) -> float:
    """P(max of n |N(0, 1)| > ratio times the max of n others)."""
    total, before, top = 0.0, 0.0, 12.0
    for step in range(1, NUM_STEPS + 1):
        inside = 1 - math.erfc(top * step / NUM_STEPS / math.sqrt(2))
        below = inside**n
        beyond = math.erfc(ratio * top * (step - 0.5) / NUM_STEPS / math.sqrt(2))
        exceeds = 1.0 if beyond >= 1 else -math.expm1(n * math.log1p(-beyond))
        total += (below - before) * exceeds
        before = below
    return total


@pytest.mark.parametrize("row", range(len(MARGINS)))
def test_margins_are_the_quantiles_rounded_up(row: int) -> None:
    n, found = MARGINS[row]
    for margin, tail in ((found.rms, rms_tail), (found.max, max_tail)):
        exact = quantile(lambda ratio, tail=tail: tail(n, ratio), PROBABILITY)  # type: ignore[misc]
        assert exact <= margin * 1.001 and margin < exact * 1.02


def test_margins_of_the_next_row_down_hold() -> None:
    assert margins(63.9) == margins(32)
    assert margins(1e9) == margins(4096)
    assert margins(1) == margins(8)


@pytest.mark.parametrize("per_draw", [1, 4, 100])
def test_freedom_is_found_from_the_draws(per_draw: int) -> None:
    """400 elements a draw, of which only some are independent."""
    generator = torch.Generator().manual_seed(per_draw)
    estimates = []
    for _ in range(50):
        errors = torch.randn(16, per_draw, generator=generator).double()
        estimates.append(freedom(errors.square().mean(1).tolist(), 16 * 400))
    assert 0.7 < sorted(estimates)[25] / (16 * per_draw) < 2


def test_freedom_has_its_bounds() -> None:
    assert freedom([], 7) == 7
    assert freedom([0.0, 0.0], 7) == 7
    assert freedom([1.0, 1.0], 8) == 4, "the same draw again"
    assert freedom([0.0] * 15 + [1.0], 1000) == 16
    assert freedom([1.0, 1.001, 0.999], 50) == 50


@pytest.mark.parametrize(("sizes", "expected"), [([1.0] * 40, 40), ([100.0] + [1.0] * 40, 1.01)])
def test_few_large_errors_are_few(sizes: list[float], expected: float) -> None:
    found = weighted(sum(s**2 for s in sizes), sum(s**4 for s in sizes))
    assert found == pytest.approx(expected, rel=0.01)
    assert weighted(0.0, 0.0) == 0


def test_freedom_of_weighted_errors_is_that_of_their_mean_squares() -> None:
    """Errors of ten binades: what the sizes say is what the draws show."""
    sizes = torch.arange(-10, 0).repeat(8).double().exp2()
    generator = torch.Generator().manual_seed(1)
    errors = torch.randn(20_000, sizes.numel(), generator=generator).double() * sizes
    squares = errors.square().mean(1)
    seen = float(2 * squares.mean() ** 2 / squares.var())
    assert weighted(float(sizes.dot(sizes)), float((sizes**4).sum())) == pytest.approx(
        seen, rel=0.1
    )


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_the_margin_is_the_quantile_of_the_largest_rounding(count: int) -> None:
    """That of uniform numbers is at most t with the probability t^count."""
    assert (1 / rounding_margin(count)) ** count == pytest.approx(PROBABILITY)
    assert rounding_margin(0) == rounding_margin(1) and rounding_margin(1e9) == pytest.approx(1)
