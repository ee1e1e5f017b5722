"""Figures of one output: ulps, pieces, NaN patterns, positions."""

from __future__ import annotations

import math

import pytest
import torch

from opweld.judge.numerics import compare
from opweld.judge.numerics.compare import ErrorSums, pieces, same_bits, ulp
from opweld.judge.numerics.grade import grade

INF, NAN = math.inf, math.nan


def test_ulp_is_the_spacing_and_that_of_the_least_normal_below_it() -> None:
    values = torch.tensor([1.0, 1.999, 2.0, -3.0, 2.0**-126, 2.0**-140, 0.0], dtype=torch.float64)
    expected = [2.0**e for e in (-23, -23, -22, -22, -149, -149, -149)]
    assert ulp(values, torch.float32).tolist() == expected
    assert ulp(torch.ones(1, dtype=torch.float64), torch.bfloat16).item() == 2.0**-7


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (5, 4, 3), (2, 50), (3, 2, 41)])
def test_pieces_cover_a_tensor_once_in_order(shape: tuple[int, ...]) -> None:
    x = torch.arange(math.prod(shape)).reshape(shape)
    runs = [x[index].reshape(-1) for index in pieces(shape, limit=8)]
    assert torch.equal(torch.cat(runs), x.reshape(-1))
    assert all(run.numel() <= 8 or len(shape) == 1 for run in runs)


def test_figures_are_those_of_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(300, generator=generator, dtype=torch.float64)
    eager = reference.float()
    new = eager + 1e-6 * torch.randn(300, generator=generator)
    sums = ErrorSums(torch.float32)
    for start in range(0, 300, 100):
        piece = slice(start, start + 100)
        sums.add(new[piece], eager[piece], reference[piece])
    error = (new.double() - reference).abs()
    figures = sums.figures()
    assert figures.count == 300
    assert figures.rms == pytest.approx(float(error.square().mean().sqrt()))
    assert figures.max == float(error.max())
    assert figures.eager_max == float((eager.double() - reference).abs().max())
    ulps = error / ulp(reference, torch.float32)
    assert sums.max_ulp == float(ulps.max())
    assert sums.quantiles()[0] == pytest.approx(float(ulps.quantile(0.5)))
    assert sums.scale == pytest.approx(float(reference.square().mean().sqrt()))
    assert sum(band.count for band in figures.bands) == 300


@pytest.mark.parametrize(
    ("new", "eager", "reference", "wrong"),
    [
        (NAN, NAN, NAN, 0),
        (INF, INF, INF, 0),
        (-INF, INF, INF, 1),
        (1.0, NAN, NAN, 1),
        (NAN, 1.0, 1.0, 1),
        (INF, INF, 1e39, 0),  # beyond float32: infinity is the rounded value
        (INF, NAN, INF, 0),  # eager stumbled, float64 is right
        (NAN, NAN, 2.0, 0),  # eager stumbled, and so may the candidate
        (2.0, NAN, 2.0, 0),  # or it gives the right answer
        (2.1, NAN, 2.0, 1),  # but not another one
        (3.0, 3.0, 3.0, 0),
        (3.0, INF, INF, 1),
        (3.0, NAN, INF, 1),
    ],
)
def test_nan_and_infinity_follow_eager_or_float64(
    new: float, eager: float, reference: float, wrong: int
) -> None:
    sums = ErrorSums(torch.float32)
    others = [1.0, 2.0]
    sums.add(
        torch.tensor([*others, new]),
        torch.tensor([*others, eager]),
        torch.tensor([*others, reference], dtype=torch.float64),
    )
    assert sums.num_special_wrong == wrong
    assert sums.first_bad == (2 if wrong else sums.worst_position)
    assert sums.max == 0, "numbers are compared where all are finite"


def test_zeros_of_the_other_sign_are_counted_not_failed() -> None:
    sums = ErrorSums(torch.float32)
    sums.add(torch.tensor([-0.0, 0.0]), torch.tensor([0.0, 0.0]), torch.zeros(2).double())
    assert sums.num_zero_sign == 1
    assert grade(sums.figures()) == "A"


def test_first_far_element_is_found_across_pieces() -> None:
    eager = torch.ones(10)
    new = eager.clone()
    new[7] = 1.5
    sums = ErrorSums(torch.float32)
    for start in (0, 5):
        sums.add(new[start : start + 5], eager[start : start + 5], torch.ones(5).double())
    assert sums.first_bad == 7
    assert not sums.close


def test_same_bits_tells_signed_zeros_apart_and_any_nan_alike() -> None:
    assert same_bits(torch.tensor([NAN, 1.0]), torch.tensor([-NAN, 1.0]))
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(torch.tensor([1, 2]), torch.tensor([1, 3]))
    assert same_bits(torch.tensor([1 + 2j]), torch.tensor([1 + 2j]))
    assert not same_bits(torch.tensor([1 + 2j]), torch.tensor([1 - 2j]))


def test_large_outputs_go_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong last element shows however the tensor is cut."""
    monkeypatch.setattr(compare, "PIECE_ELEMS", {"cpu": 16})
    x = torch.arange(1000.0).reshape(10, 100)
    y = x.clone()
    y[-1, -1] += 1
    assert same_bits(x, x.clone()) and not same_bits(x, y)


@pytest.mark.parametrize(
    ("new", "eager", "reference", "wrong"),
    [
        (NAN, 0.0, -0.1, 0),  # eager's sum of squares overflowed, and so may the other
        (0.0, NAN, -0.1, 0),
        (NAN, -0.1, -0.1, 1),  # eager is right there
        (NAN, -0.09, -0.1, 1),
        (NAN, 0.0, 0.0, 1),
        (1.0, INF, 1e39, 1),  # infinity is right there
    ],
)
def test_what_overflows_on_the_way_may_do_so_differently(
    new: float, eager: float, reference: float, wrong: int
) -> None:
    for overflows in (True, False):
        sums = ErrorSums(torch.float32, overflows=overflows)
        three = (torch.tensor([v]) for v in (new, eager))
        sums.add(*three, torch.tensor([reference], dtype=torch.float64))
        assert sums.num_special_wrong == (wrong if overflows else 1)
