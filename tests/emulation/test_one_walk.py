"""Folds that take in several elements at once: right at every edge of chunks, and on hard rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.emulation.emulate import ORDERS
from tests.emulation.reductions import ANY_CALL, Calls, Case, case, each_result, run
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from tests.one_walk import (
    CUT,
    UNCUT,
    Outputs,
    finite_powers,
    hard_rows,
    layer_norm,
    masked_scores,
    moments,
    moments_across,
    moments_double,
    outputs_of,
    powers,
    powers_across,
    sizes_of,
    softmax,
    softmax_across,
    softmax_double,
    softmax_half,
    values,
)
from tests.unit.plan.plans import BATCH, Make

from opweld.render.cuda.texts import cuda_text


@cache
def case_of(make: Callable[[Make], Outputs]) -> Case:
    return case(make.__name__, *outputs_of(make), cut=make in CUT)


@cache
def text() -> str:
    return cuda_text(tuple(case_of(make).reduction for make in (*UNCUT, *CUT)))


PIECES: Calls = (
    *({**options, "pieces": 3} for options in ANY_CALL),
    {"pieces": 40},
)


def check(
    make: Callable[[Make], Outputs],
    feeds: dict[str, np.ndarray],
    calls: Calls = ANY_CALL,
    **tolerance: float,
) -> None:
    """Every way to call a reduction gives what the graph means."""
    sizes = sizes_of(feeds["x"])
    for mine, theirs, call in each_result(text(), case_of(make), feeds, sizes, calls):
        with np.errstate(over="ignore"):
            theirs = theirs.astype(mine.dtype)
        np.testing.assert_allclose(mine, theirs, **tolerance, err_msg=str(call))


def test_two_walks_have_become_one() -> None:
    for make in (*UNCUT, *CUT):
        assert len(case_of(make).reduction.contiguous.steps) == (2 if make in UNCUT else 1)


# Around a packet, a chunk of four, and what a team of 8, 32 and 1024 threads takes at once.
LENGTHS = (4, 8, 16, 20, 128, 132, 256, 2048, 2052, 16388)


@pytest.mark.parametrize("length", LENGTHS)
def test_rows_of_any_length(length: int) -> None:
    x = 3 * values(33 if length < 200 else 3, length)
    calls = ANY_CALL if length in (20, 132) else ({},)
    pieces = PIECES if length in (20, 2052) else ({"pieces": 1}, {"pieces": 3})
    check(softmax, {"x": x}, calls, rtol=2e-6)
    check(powers, {"x": x}, pieces, rtol=1e-6)
    check(moments, {"x": x + 9}, pieces, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 1, 4), (2, 5, 8), (3, 33, 68), (1, 1030, 4)], ids=str)
def test_columns_of_any_length(shape: tuple[int, ...]) -> None:
    x = 3 * values(*shape)
    check(softmax_across, {"x": x}, rtol=2e-6)
    check(powers_across, {"x": x}, PIECES, rtol=1e-6)
    check(moments_across, {"x": x + 9}, PIECES, rtol=1e-6, atol=1e-12)


def test_other_types() -> None:
    check(softmax_half, {"x": values(11, 264, dtype=np.float16)}, rtol=1e-3, atol=1e-7)
    check(softmax_double, {"x": values(11, 90, dtype=np.float64)}, rtol=1e-13)
    check(moments_double, {"x": values(5, 90, dtype=np.float64)}, PIECES, rtol=1e-13, atol=1e-12)


def test_with_other_folds_and_a_bias() -> None:
    check(masked_scores, {"x": values(9, 520), "bias": 2 * values(520, seed=1)}, rtol=2e-6)


def test_a_norm_with_a_weight() -> None:
    check(layer_norm, {"x": values(9, 3, 88) + 3, "weight": values(3, 88)}, rtol=2e-5, atol=3e-6)


def test_powers_of_hard_rows() -> None:
    x = hard_rows()
    check(powers, {"x": x}, PIECES, rtol=1e-6)
    check(softmax, {"x": x}, rtol=2e-6, atol=1e-37)
    check(finite_powers, {"x": x}, PIECES, rtol=1e-6)


def test_squared_differences_of_hard_rows() -> None:
    x = hard_rows()
    check(moments, {"x": x}, PIECES, rtol=1e-6, atol=1e-3)


def test_sums_that_are_too_large_are_infinite() -> None:
    x = np.full((1, 520), 3e38, np.float32)
    x[0, ::2] = 1e38
    (total, squares) = run(text(), case_of(moments), {"x": x}, sizes_of(x))
    assert np.isinf(total) and np.isinf(squares)


@pytest.mark.parametrize("step", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("make", [powers, powers_across], ids=lambda make: make.__name__)
def test_a_row_that_ascends_moves_its_sum_seldom(
    make: Callable[[Make], Outputs], step: float
) -> None:
    """A sum that is multiplied at every new largest is off by 1e-5 here."""
    ascending = (np.arange(32768) * np.float32(step)).astype(np.float32)
    x = ascending[None] if make is powers else np.repeat(ascending[None, :, None], 4, 2)
    check(make, {"x": x}, ({},), rtol=4e-7)


def errors(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.max(np.abs(got / wanted - 1)))


@pytest.mark.parametrize("make", [moments, moments_across], ids=lambda make: make.__name__)
def test_a_mean_far_from_zero_costs_no_digits(make: Callable[[Make], Outputs]) -> None:
    x = values(2, 8192) if make is moments else values(2, 4000, 4)
    x += np.float32(1e6)
    wide = x.astype(np.float64)
    wanted = ((wide - wide.mean(1, keepdims=True)) ** 2).sum(1, keepdims=True)
    (_, squares) = run(text(), case_of(make), {"x": x}, sizes_of(x))
    assert errors(squares, wanted) < 1e-6


def test_one_huge_element_among_small_ones() -> None:
    for place in (0, 4000, 8191):
        x = values(1, 8192)
        x[0, place] = 1e12
        check(moments, {"x": x}, PIECES, rtol=1e-6)
        check(powers, {"x": x}, PIECES, rtol=0)


@pytest.mark.parametrize("order", ORDERS[1:])
def test_every_order_of_threads_gives_the_same_bits(order: str) -> None:
    x = values(2, 5000)
    for make in (powers, moments):
        first, now = (
            run(text(), case_of(make), {"x": x}, sizes_of(x), pieces=5, order=each)
            for each in ("forward", order)
        )
        for one, other in zip(first, now, strict=True):
            np.testing.assert_array_equal(one, other)


def spilling(make: Callable[[Make], Outputs], where: str) -> Any:
    """What spills so far."""
    return pytest.param(
        make,
        marks=[
            pytest.mark.slow,
            pytest.mark.xfail(strict=True, raises=AssertionError, reason=where),
        ],
    )


@needs_nvcc
@pytest.mark.parametrize(
    "make",
    [
        softmax,
        spilling(softmax_across, "160 bytes a thread of 4 columns, 128 of one"),
        pytest.param(masked_scores, marks=pytest.mark.slow),
        spilling(powers, "20 bytes a thread of those that merge pieces"),
        moments,
    ],
)
def test_nvcc_takes_it_without_warnings_and_spills(make: Callable[[Make], Outputs]) -> None:
    require_no_spills(compile_cuda(cuda_text((case_of(make).reduction,))))


@needs_nvcc
def test_statistics_of_columns_spill_little() -> None:
    """For two blocks of 512 threads a multiprocessor: 100352x64 took 15 us so, else 21 (H200)."""
    uses = compile_cuda(cuda_text((case_of(moments_across).reduction,)), "sm_90a")
    narrow = [use for use in uses if "rows_across" in use.name and "EjJ" in use.name]
    assert narrow and max(use.registers for use in narrow) == 64
    assert max(use.spill_store_bytes for use in narrow) <= 80
    require_no_spills([use for use in uses if use not in narrow])


def channel_moments(m: Make) -> Outputs:
    x = m.x("x", 8, BATCH, 3136)
    mean = m.div(m.reduced("sum", x, 0, 2), float(8 * 3136))
    centred = m.sub(x, mean)
    return mean, m.reduced("sum", m.mul(centred, centred), 0, 2)


@needs_nvcc
def test_statistics_leave_registers_for_many_threads() -> None:
    """Five blocks of 256 threads, whose loads are under way together, on each multiprocessor."""
    reduction = case("channels", *outputs_of(channel_moments), cut=True).reduction
    uses = compile_cuda(cuda_text((reduction,)), "sm_90a")
    narrow = [use for use in uses if "rows_along" in use.name and "EjJ" in use.name]
    assert len(narrow) == 2
    require_no_spills(narrow)
    assert max(use.registers for use in narrow) <= 65536 // (5 * 256) // 8 * 8
