"""Products of packed operands by mma.sync, with the tensor core's rounding, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulation.distributions import error, exact
from tests.emulation.emulate import EmulationFault, from_bfloat16, to_bfloat16
from tests.emulation.packed import packed_product, text
from tests.emulation.products import MODES, Call, product

EXTENTS = [(1, 1, 1, 1), (1, 128, 128, 64), (1, 129, 127, 65), (2, 5, 130, 100), (1, 40, 24, 300)]


def rounded(values: np.ndarray, mode: str) -> np.ndarray:
    if mode == "Half":
        return values.astype(np.float16).astype(np.float32)
    return from_bfloat16(to_bfloat16(values)) if mode == "Bfloat16" else values


def operands(
    batches: int, m: int, n: int, k: int, mode: str = "Faithful"
) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(m + n + k)
    a = random.standard_normal((batches, m, k)).astype(np.float32)
    b = random.standard_normal((batches, n, k)).astype(np.float32)
    return rounded(a, mode), rounded(b, mode)


def bound(a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """What the errors may be: of the operands' parts, and of the sum."""
    parts = {"Faithful": 2.0**-21, "Tf32": 2.0**-10}.get(mode, 0.0)
    additions = a.shape[2] / 16 + 2
    return exact(abs(a), abs(b)) * (parts + additions * 2.0**-23)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_tiles_of_any_extents(mode: str, extents: tuple[int, ...]) -> None:
    a, b = operands(*extents, mode)
    found = packed_product(a, b, mode, lanes=2 if extents[2] % 2 == 0 else 1)
    assert (abs(found - exact(a, b)) <= bound(a, b, mode)).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("splits", [2, 3])
def test_sums_over_k_in_parts(mode: str, splits: int) -> None:
    a, b = operands(2, 5, 12, 700, mode)
    found = packed_product(a, b, mode, lanes=2, splits=splits)
    assert (abs(found - exact(a, b)) <= bound(a, b, mode)).all()
    assert (found != packed_product(a, b, mode, lanes=2)).any()  # in another order


def test_one_operand_may_serve_all_batches() -> None:
    a, b = operands(3, 4, 9, 70)
    each = packed_product(a, np.repeat(b[:1], 3, axis=0), "Faithful")
    np.testing.assert_array_equal(packed_product(a, b[:1], "Faithful"), each)


@pytest.mark.parametrize("mode", MODES)
def test_a_sum_of_nothing_is_zero(mode: str) -> None:
    assert (packed_product(*operands(2, 3, 4, 0), mode) == 0.0).all()


@pytest.mark.parametrize("extents", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5)], ids=str)
def test_nothing_is_done_for_an_empty_result(extents: tuple[int, ...]) -> None:
    assert packed_product(*operands(*extents), "Faithful").size == 0


@pytest.mark.parametrize("mode", MODES)
def test_small_integers_are_exact(mode: str) -> None:
    random = np.random.default_rng(1)
    a = random.integers(-1000 if mode == "Faithful" else -100, 100, (1, 20, 90)).astype(np.float32)
    b = random.integers(-100, 100, (1, 30, 90)).astype(np.float32)
    np.testing.assert_array_equal(packed_product(a, b, mode), exact(a, b))


@pytest.mark.parametrize("mode", ["Half", "Bfloat16"])
def test_infinities_and_nan_stay_in_their_rows_and_columns(mode: str) -> None:
    a, b = operands(1, 20, 22, 70, mode)
    a[0, 3, 4], a[0, 5, 66], b[0, 9, 4], b[0, 11, 3] = np.inf, np.nan, 0.0, np.nan
    found = packed_product(a, b, mode)
    with np.errstate(invalid="ignore"):
        expected = exact(a, b)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(found[infinite], expected[infinite])


def test_unfit_operands_are_left_to_another_kernel() -> None:
    a, b = operands(1, 3, 4, 64)
    assert np.isnan(packed_product(a, b, "Faithful", needs_fallback=1)).all()
    found = packed_product(a, b, "Faithful", needs_fallback=0)
    np.testing.assert_array_equal(found, packed_product(a, b, "Faithful"))


@pytest.mark.parametrize("mode", ["Faithful", "Half"])
def test_the_order_of_threads_changes_nothing(mode: str) -> None:
    a, b = operands(1, 130, 40, 320, mode)
    first = packed_product(a, b, mode, splits=2)
    for order in ("reverse", "seeded"):
        np.testing.assert_array_equal(packed_product(a, b, mode, splits=2, order=order), first)


def test_without_promotion_the_tensor_cores_rounding_would_show() -> None:
    random = np.random.default_rng(3)
    # Largest elements of one power of two: all scales are 2^-15.
    a, b = (random.uniform(0.5, 1, (1, 8, 2048)).astype(np.float32) for _ in range(2))
    straight = text(("Faithful",))
    for sound, other in (
        ("mma_products<Mode>(block, stage);", "mma_products<Mode>(sums, stage);"),
        ("sums.promote(block, scales);", ""),
        ("column] *= scale;", "column] *= scale * 0x1p-15f;"),
    ):
        assert sound in straight
        straight = straight.replace(sound, other)
    drifted = packed_product(a, b, "Faithful", source=straight)
    np.testing.assert_allclose(drifted, exact(a, b), rtol=1e-3)
    assert error(drifted, a, b) > 5 * error(product(a, b, Call(lanes=1)), a, b)
    assert error(packed_product(a, b, "Faithful"), a, b) < error(drifted, a, b) / 20


# What may be broken, one at a time, and must show.
FAULTS = {
    "sums that begin anywhere": ("block.clear();", ""),
    "no small parts of b": ("into.template add<Element>(high[step], low);", ""),
    "a's scale of another row": ("own[16 * i], own[16 * i + 8]", "own[16 * i], own[16 * i]"),
    "rows not rotated alike": ("place(row + 16 * i, chunk + lane / 16)", "place(row, chunk)"),
    "no wait for copies": ("await_copies<kStages - 2>();", "await_copies<kStages - 1>();"),
    "a stage too few in the ring": ("slot + 1 < kStages ?", "slot + 2 < kStages ?"),
    "the edge of n": ("if (column < columns) sink", "if (column <= columns) sink"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_kernel_shows(fault: str) -> None:
    sound, broken = FAULTS[fault]
    source = text(("Faithful",))
    assert sound in source
    a, b = operands(1, 40, 25, 300)
    try:
        found = packed_product(a, b, "Faithful", source=source.replace(sound, broken))
    except (EmulationFault, AssertionError):
        return
    assert not (abs(found - exact(a, b)) <= bound(a, b, "Faithful")).all()
