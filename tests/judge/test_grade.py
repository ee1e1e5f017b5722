"""The grade as a function of figures, and of tensors: honest kernels pass, wrong ones do not."""

from __future__ import annotations

import pytest
import torch

from opweld.judge.numerics.compare import ErrorSums, format_of
from opweld.judge.numerics.grade import (
    Band,
    Figures,
    Format,
    Rounding,
    grade,
    loses_digits,
    without_allowance,
    worst,
)

FLOAT32 = Format(precision=24, min_exponent=-126, bits=32)


def figures(**changes: object) -> Figures:
    values = {
        "format": FLOAT32,
        "count": 10_000,
        "rms": 1.0,
        "max": 4.0,
        "excess": 4.0,
        "eager_rms": 1.0,
        "eager_max": 4.0,
        "half_ulp_rms": 0.1,
        "close": True,
    }
    return Figures(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "A"),
        ({"rms": 1.149}, "A"),  # 1.05 * 1.0 + 0.1
        ({"rms": 1.151}, "B"),
        ({"rms": 2.099}, "B"),  # 2 * 1.0 + 0.1
        ({"rms": 2.101}, "C"),
        ({"rms": 2.101, "close": False}, "F"),
        ({"excess": 6.0}, "A"),  # 1.5 * 4.0, the half ulp is already off
        ({"excess": 6.01}, "B"),
        ({"excess": 8.0}, "B"),
        ({"excess": 8.01}, "C"),
        ({"num_special_wrong": 1}, "F"),
        ({"count": 0, "rms": 9.0}, "A"),
        ({"rms": 4.6, "count": 20}, "B"),  # 4.55 * 1.0 + 0.1, by chance with 16 errors
        ({"rms": 4.7, "count": 20}, "C"),
        ({"rms": 2.2, "freedom": 40.0}, "B"),
        ({"rms": 2.9, "freedom": 40.0}, "C"),
        ({"excess": 12.5, "freedom": 64.0}, "B"),
        ({"excess": 12.8, "freedom": 64.0}, "C"),
    ],
)
def test_grade_follows_the_margins(changes: dict[str, object], expected: str) -> None:
    assert grade(figures(**changes)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"excess": 12.0, "rounding": Rounding(0.0, 8.0, 5)}, "A"),  # 1.5 * 8.0
        ({"excess": 16.0, "rounding": Rounding(0.0, 8.0, 5)}, "B"),
        ({"excess": 16.1, "rounding": Rounding(0.0, 8.0, 5)}, "C"),
        ({"excess": 11.0, "rounding": Rounding(0.0, 8.0, 50)}, "B"),  # 2 * 1.38 * 4.0
        ({"excess": 11.1, "rounding": Rounding(0.0, 8.0, 50)}, "C"),
        ({"excess": 8.02, "rounding": Rounding(0.0, 8.0, 9000)}, "C"),
        ({"excess": 8.01, "rounding": Rounding(0.0, 3.9, 5)}, "C"),  # eager's own error is larger
        ({"rms": 6.1, "rounding": Rounding(3.0, 0.0, 5)}, "B"),
        ({"rms": 6.2, "rounding": Rounding(3.0, 0.0, 5)}, "C"),
        ({"rms": 2.2, "rounding": Rounding(3.0, 0.0, 9000)}, "C"),
        ({"excess": 1e-3, "eager_max": 0.0, "rounding": Rounding(3.0, 8.0, 5)}, "C"),
    ],
)
def test_eager_is_no_better_than_correct_rounding_but_significantly(
    changes: dict[str, object], expected: str
) -> None:
    assert grade(figures(**changes)) == expected


def test_figures_without_any_allowance() -> None:
    few = figures(rms=3.0, excess=12.5, freedom=20.0, rounding=Rounding(2.0, 9.0, 5))
    assert grade(few) == "B"
    assert grade(without_allowance(few)) == "C"
    assert grade(without_allowance(figures(rms=2.0, excess=8.0))) == "B"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_types_may_be_three_times_eager(dtype: torch.dtype) -> None:
    form = format_of(dtype)
    assert grade(figures(format=form, rms=3.09, excess=12.0)) == "B"
    assert grade(figures(format=form, rms=3.11)) == "C"
    assert grade(figures(rms=3.09, excess=12.0)) == "C"


def test_formats_are_those_of_ieee() -> None:
    assert format_of(torch.float32) == FLOAT32
    assert format_of(torch.float16) == Format(11, -14, 16)
    assert format_of(torch.bfloat16) == Format(8, -126, 16)
    assert FLOAT32.eps == torch.finfo(torch.float32).eps


def test_worst_is_the_lowest_grade() -> None:
    assert worst(["A", "C", "B"]) == "C"
    assert worst([]) == "A"


def test_small_elements_may_not_lose_half_of_their_digits() -> None:
    lost = Band(count=100, rms_value=1e-3, rms_error=1e-5, eager_rms_error=1e-10)
    assert loses_digits(FLOAT32, lost)
    assert not loses_digits(FLOAT32, Band(100, 1e-3, 1e-5, 2e-6)), "eager cancels as well"
    assert not loses_digits(FLOAT32, Band(31, 1e-3, 1e-5, 1e-10)), "too few to tell"
    assert grade(figures(bands=(lost,))) == "F"


def test_sixteen_bit_eager_may_cancel_exactly_by_chance() -> None:
    form = format_of(torch.bfloat16)
    left_over = Band(count=100, rms_value=1e-20, rms_error=1e-14, eager_rms_error=1e-20)
    assert not loses_digits(form, left_over, scale=1e-6)
    assert loses_digits(form, left_over, scale=1e-12), "1e-14 is much beside values of 1e-12"
    assert loses_digits(FLOAT32, left_over, scale=1e-6), "float32 is not rounded on the way"


def graded(new: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor) -> str:
    sums = ErrorSums(eager.dtype)
    sums.add(new, eager, reference)
    return grade(sums.figures())


@pytest.fixture(scope="module")
def softmax() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.randn(64, 200, generator=torch.Generator().manual_seed(3))
    return x, x.softmax(1), x.double().softmax(1)


def test_another_order_of_summation_is_delivered(softmax: tuple[torch.Tensor, ...]) -> None:
    x, eager, reference = softmax
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(4))
    new = torch.empty_like(eager)
    new[:, order] = x[:, order].softmax(1)
    assert not torch.equal(new, eager)
    assert graded(new, eager, reference) in "AB"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_permuted_products_are_delivered(seed: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(40, 300, generator=generator).to(dtype)
    b = torch.randn(300, 50, generator=generator).to(dtype)
    order = torch.randperm(300, generator=generator)
    assert graded(a[:, order] @ b[order], a @ b, a.double() @ b.double()) in "AB"


def wrong_by_1e_4(y: torch.Tensor) -> torch.Tensor:
    return y * (1 + 1e-4)


def wrong_in_the_last(y: torch.Tensor) -> torch.Tensor:
    y = y.clone()
    y.view(-1)[-1] += 1e-3
    return y


def swapped_rows(y: torch.Tensor) -> torch.Tensor:
    return y.flip(0)


def wrong_where_small(y: torch.Tensor) -> torch.Tensor:
    return torch.where(y < y.median(), y * 1.5, y)


@pytest.mark.parametrize(
    "change", [wrong_by_1e_4, wrong_in_the_last, swapped_rows, torch.zeros_like, wrong_where_small]
)
def test_slightly_wrong_results_fail(change, softmax: tuple[torch.Tensor, ...]) -> None:  # type: ignore[no-untyped-def]
    _, eager, reference = softmax
    assert graded(change(eager), eager, reference) in "CF"
    assert graded(eager, eager, reference) == "A"


def test_errors_among_small_elements_show_beside_large_ones() -> None:
    """Root mean square and maximum are set by the large half alone."""
    large = torch.rand(500, generator=torch.Generator().manual_seed(1)).mul(1e6).sqrt().mul(1e4)
    small = torch.rand(500, generator=torch.Generator().manual_seed(2)).add(1)
    exact = torch.cat([large, small]).double()
    eager = (exact * (1 + 3e-7)).float()
    new = eager.clone()
    new[500:] *= 1.01
    assert graded(new, eager, exact) == "F"


def test_a_reference_of_its_own_rounding_counts_half_an_ulp() -> None:
    exact = torch.tensor([1.0 + 2**-24, 3.0, 5.0], dtype=torch.float64)
    eager = torch.tensor([1.0, 3.0, 5.0])
    up = torch.tensor([1.0 + 2**-23, 3.0, 5.0])
    assert graded(up, eager, exact) == "A", "both are correctly rounded"
    assert graded(eager + 2**-20, eager, exact) == "C"


def one_large(num_large: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Eager and float64: numbers of 0.01 and less, correctly rounded, and some just below 1, which
    eager misses by a thousandth of an ulp.
    """
    exact = torch.rand(500, generator=torch.Generator().manual_seed(1), dtype=torch.float64) / 100
    exact[:num_large] = 0.75 + 2**-34
    return exact.float(), exact


@pytest.mark.parametrize(
    ("ulps", "num_large", "num_wrong", "passes"),
    [
        (1, 1, 1, True),
        (2, 1, 1, False),
        (-1, 1, 1, True),
        (1, 50, 1, False),  # eager has 50 of them right: that is no chance
        (1, 50, 50, False),
    ],
)
def test_an_ulp_of_one_large_element_is_the_error_of_any_rounding(
    ulps: int, num_large: int, num_wrong: int, passes: bool
) -> None:
    eager, exact = one_large(num_large)
    new = eager.clone()
    new[:num_wrong] += ulps * 2**-24
    assert (graded(new, eager, exact) in "AB") is passes


@pytest.mark.parametrize("ulps", [3, 10, 1000])
def test_a_large_element_does_not_hide_one_wrong_element(ulps: int) -> None:
    eager, exact = one_large()
    new = eager.clone()
    new[300] += ulps * 2**-24  # ulps of the large one
    assert graded(new, eager, exact) in "CF"


def test_a_large_element_does_not_hide_a_lower_precision_of_the_others() -> None:
    """TF32's and bfloat16's errors are 2^13 and 2^16 times those of float32."""
    eager, exact = one_large()
    for factor in (2**13, 2**16):
        new = (exact + factor * (eager.double() - exact).roll(1)).float()
        new[:2] = eager[:2]
        assert graded(new, eager, exact) in "CF"


def test_what_needs_no_rounding_has_to_be_exact() -> None:
    """Of an output that a relu gives, say: the large elements are the inputs."""
    exact = torch.randn(500, generator=torch.Generator().manual_seed(1)).clamp(min=0).double()
    exact[:100] = torch.rand(100, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    exact[:100] *= 1e-3
    eager = exact.float()
    new = eager.clone()
    new[int(exact.argmax())] *= 1 + 2**-23
    assert graded(new, eager, exact) == "C"
