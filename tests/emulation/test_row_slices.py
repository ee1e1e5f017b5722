"""Products of 5 to 16 rows, on the tensor cores and beside them: as exact as float32 sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.emulation.distributions import chain_of_fmas, distributions, error, exact
from tests.emulation.emulate import EmulationFault
from tests.emulation.products import Call, product, text

CALL = Call(lanes=1)
# How rows of the larger operand lie, and how many: a tile for each warp of a block, or less.
LAYOUTS = ("along", "narrow", "across")
ROWS = {"along": 260, "narrow": 40, "across": 40}


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def laid(b: np.ndarray, layout: str) -> np.ndarray:
    """The operand of many rows; of `few` rows lie along k throughout."""
    if layout != "across":
        return b
    return np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k", [256, pytest.param(2048, marks=pytest.mark.slow)])
def test_errors_are_no_larger_than_those_of_a_chain(k: int, layout: str) -> None:
    for name, (a, b) in distributions(k).items():
        a, b = a[:, :16], b[:, np.arange(max(b.shape[1], ROWS[layout])) % b.shape[1]]
        found = product(a, laid(b, layout), CALL)
        assert error(found, a, b) <= max(error(chain_of_fmas(a, b), a, b), 2.0**-27), name


# Rows on either side; several tasks of a block, sums in parts, edges of stages and packets.
EXTENTS = [
    (1, 16, 132, 100),
    (1, 9, 300, 64),
    (2, 12, 20, 36),
    (1, 140, 13, 200),
    (1, 16, 64, 4160),
    (1, 16, 260, 1100),
    (2, 12, 300, 36),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_products_of_any_extents(extents: tuple[int, ...], layout: str) -> None:
    batches, m, n, k = extents
    a, b = values(batches, m, k), values(batches, n, k, seed=1)
    many_first = m > n
    found = product(
        laid(a, layout) if many_first else a,
        b if many_first else laid(b, layout),
        CALL,
        source=text(("Faithful",), lanes=(1,)),  # without pieces that other modes bring
    )
    assert (abs(found - exact(a, b)) <= 2.0**-20 * exact(abs(a), abs(b))).all()


def test_operands_that_may_not_be_read_four_at_once() -> None:
    a, b = values(1, 16, 77), values(1, 40, 77, seed=1)
    found = product(a, b, CALL)
    assert (abs(found - exact(a, b)) <= 2.0**-20 * exact(abs(a), abs(b))).all()
    np.testing.assert_array_equal(product(a, b, replace(CALL, options={"guard": "front"})), found)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, 3.4e38])
@pytest.mark.parametrize("side", ["few", "many"])
def test_values_that_bfloat16_has_not(odd: float, side: str, layout: str) -> None:
    a, b = values(1, 16, 100), values(1, ROWS[layout], 100, seed=1)
    (a if side == "few" else b)[0, 3, 70] = odd
    (b if side == "few" else a)[0, 4, 70] = 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        chain = chain_of_fmas(a, b)
    found = product(a, laid(b, layout), CALL)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(chain))
    np.testing.assert_array_equal(found[np.isinf(chain)], chain[np.isinf(chain)])
    finite = np.isfinite(chain)
    np.testing.assert_allclose(found[finite], chain[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scale", [1e-42, 1e-38, 1e-34, 1e-30, 1e30, 2e37], ids=str)
@pytest.mark.parametrize("side", ["few", "many"])
def test_values_of_any_size_are_as_exact(side: str, scale: float, layout: str) -> None:
    a, b = values(1, 16, 96), values(1, ROWS[layout], 96, seed=1)
    up, down = np.float32(scale), np.float32(1 / max(scale, 1e-30))
    a, b = (a * up, b * down) if side == "few" else (a * down, b * up)
    found = product(a, laid(b, layout), CALL)
    assert error(found, a, b) <= max(error(chain_of_fmas(a, b), a, b), 2.0**-26)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_order_of_threads_changes_nothing(layout: str) -> None:
    a, b = values(1, 16, 300), laid(values(1, 200 + ROWS[layout], 300, seed=1), layout)
    first = product(a, b, CALL)
    for order in ("reverse", "seeded"):
        np.testing.assert_array_equal(product(a, b, replace(CALL, options={"order": order})), first)


FAULTS = {
    "a place that is turned otherwise": (
        "(kAcross ? turn(i * kAtOnce) * 16 : 0)",
        "0",
    ),
    "lower parts left out": ("kA[6] = {2, 0,", "kA[6] = {1, 0,"),
    "small rows let through": ("kLargeBits = 0x78000000u", "kLargeBits = 0x7FFFFFFFu"),
    "odd sums let through": ("if (exponent_of(total[0]) == 128 || Dots::", "if (Dots::"),
    "stages that are not awaited": (
        "await_copies<0>();\n            __syncwarp();",
        "__syncwarp();",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_shows(fault: str) -> None:
    sound, broken = FAULTS[fault]
    source = text(("Faithful",), lanes=(1,))
    assert source.count(sound) == 1
    faulty = source.replace(sound, broken)
    a, b = values(1, 16, 164), values(1, 40, 164, seed=1)
    odd = b.copy()
    odd[0, 5, 70] = np.inf
    tiny = (a * np.float32(1e30), b * np.float32(1e-38))
    wrong = False
    for order in ("forward", "reverse"):
        call = replace(CALL, options={"order": order})
        for left, right in ((a, b), (a, odd), tiny):
            right = laid(right, "across")
            try:
                found = product(left, right, call, source=faulty)
            except (EmulationFault, AssertionError):
                wrong = True
                continue
            wrong |= not np.array_equal(found, product(left, right, CALL), equal_nan=True)
    assert wrong
