"""Products of two operands that are new at each call, split where they are multiplied."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.emulation.distributions import (
    chain_of_fmas,
    distributions,
    drowning,
    error,
    exact,
    ordinary,
)
from tests.emulation.emulate import EmulationFault
from tests.emulation.products import Call, makers, product, text

LIVE = Call(mode="FaithfulLive", lanes=2, family="mma")


@cache
def source() -> str:
    """A text that takes short sums, too: long ones are emulated slowly."""
    whole, depth = text(("FaithfulLive",), lanes=(1, 2), family="mma"), "kLeastDepth = 1024"
    assert depth in whole
    return whole.replace(depth, "kLeastDepth = 33")


def made(a: np.ndarray, b: np.ndarray, call: Call = LIVE, shift: int = 0) -> np.ndarray:
    return product(a, b, call, shift=shift, source=source())


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def across(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)


def near(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> bool:
    return bool((abs(found - exact(a, b)) <= 2.0**-20 * exact(abs(a), abs(b))).all())


@pytest.mark.parametrize("k", [256, pytest.param(2048, marks=pytest.mark.slow)])
def test_errors_are_no_larger_than_those_of_a_chain(k: int) -> None:
    for name, (a, b) in distributions(k).items():
        assert error(made(a, b), a, b) <= error(chain_of_fmas(a, b), a, b), name


# Edges of packets, lots and tiles; sums in one part and in several.
EXTENTS = [(1, 20, 24, 36), (2, 132, 20, 100), (1, 20, 132, 64), (1, 36, 40, 604)]


@pytest.mark.parametrize("layout", ["along", "a across", "b across", "across"])
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_operands_may_lie_along_and_across(extents: tuple[int, ...], layout: str) -> None:
    batches, m, n, k = extents
    a, b = values(batches, m, k), values(batches, n, k, seed=1)
    a = across(a) if layout in ("a across", "across") else a
    b = across(b) if layout in ("b across", "across") else b
    assert near(made(a, b), a, b)
    assert makers(a, b, LIVE, source()) == 1


def test_what_may_not_be_read_four_at_once_is_split_before() -> None:
    a, b = values(1, 20, 70), values(1, 24, 70, seed=1)
    assert near(made(a, b), a, b)
    a, b = values(1, 20, 64), values(1, 24, 64, seed=1)
    assert near(made(a, b, shift=1), a, b)


def test_lines_may_lie_apart_and_be_shared() -> None:
    wide = values(1, 20, 104)
    a, b = wide[:, :, :64], values(3, 24, 64, seed=1)
    shared = np.broadcast_to(a, (3, 20, 64))
    assert near(made(shared, b), shared, b)


def test_nothing_beside_the_operands_is_read() -> None:
    a, b = values(1, 20, 100), values(1, 24, 100, seed=1)
    guarded = replace(LIVE, options={"guard": "front"})
    for operands in ((a, b), (across(a), across(b))):
        np.testing.assert_array_equal(made(*operands, guarded), made(*operands))


def test_the_order_of_threads_changes_nothing() -> None:
    a, b = values(1, 36, 300), values(1, 40, 300, seed=1)
    first = made(a, across(b))
    for order in ("reverse", "seeded"):
        call = replace(LIVE, options={"order": order})
        np.testing.assert_array_equal(made(a, across(b), call), first)


def test_ordinary_operands_stay_on_the_tensor_cores() -> None:
    for name, (a, b) in ordinary(256).items():
        assert makers(a, b, LIVE, source()) == 1, name
        assert error(made(a, b), a, b) <= 2 * error(chain_of_fmas(a, b), a, b), name


@pytest.mark.parametrize("bits", [18, pytest.param(60, marks=pytest.mark.slow)])
def test_sums_that_large_values_drown_are_another_kernels(bits: int) -> None:
    for name, (a, b) in drowning(192, bits).items():
        assert error(made(a, b), a, b) <= error(chain_of_fmas(a, b), a, b), name


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-13, 1e17, 1e30, 2e37], ids=str)
def test_values_of_any_size_are_as_exact(scale: float) -> None:
    a, b = values(1, 20, 96), values(1, 24, 96, seed=1)
    a, b = a * np.float32(scale), b / np.float32(max(scale, 1e-30))
    chain = error(chain_of_fmas(a, b), a, b)
    assert error(made(a, b), a, b) <= max(chain, 2.0**-26)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_value_that_is_not_finite_reaches_what_it_reaches_in_float32(
    odd: float, side: str
) -> None:
    a, b = values(1, 20, 96), values(1, 24, 96, seed=1)
    (a if side == "a" else b)[0, 3, 70] = odd
    (b if side == "a" else a)[0, 4, 70] = 0.0
    found, chain = made(a, b), product(a, b, Call(lanes=1))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(chain))
    np.testing.assert_array_equal(found[np.isinf(chain)], chain[np.isinf(chain)])
    assert makers(a, b, LIVE, source()) == 2


def test_zeros_and_one_value_a_line() -> None:
    a, b = np.zeros((1, 20, 64), np.float32), values(1, 24, 64)
    assert (made(a, b) == 0).all() and makers(a, b, LIVE, source()) == 1
    a[0, :, 40] = 1.0
    np.testing.assert_allclose(made(a, b)[0, 0], b[0, :, 40], rtol=2.0**-21)


FAULTS = {
    "a lot that is not turned": ("(chunk ^ line % 8) * 16", "chunk * 16"),
    "columns without scales": ("* column[v % 2]", ""),
    "lines out of range let through": ("exponent < -45 || exponent > 60", "false"),
    "digits that are lost let through": ("if (excess > 0) needs_fallback = 1;", ""),
    "sums that are odd let through": ("if (sums.are_odd()) needs_fallback = 1;", ""),
    "a barrier less": (
        "__syncthreads();  // what was split is there",
        "// what was split is there",
    ),
    "k beyond the last": ("left -= kDepth;", ""),
    "a lot in the place of another": ("filled + 1 < stages", "filled + 1 < 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_shows(fault: str) -> None:
    sound, broken = FAULTS[fault]
    assert source().count(sound) == 1
    faulty = source().replace(sound, broken)
    a, b = values(1, 20, 292), values(1, 24, 292, seed=1)
    odd = a.copy()
    odd[0, 3, 7] = np.nan
    cases = [(a, b), (a * np.float32(1e-25), b * np.float32(1e-25) * np.float32(1e20)), (odd, b)]
    cases += list(drowning(192, 28).values())
    wrong = False
    for order in ("forward", "reverse"):
        call = replace(LIVE, options={"order": order})
        for left, right in cases:
            try:
                found = product(left, right, call, source=faulty)
            except (EmulationFault, AssertionError):
                wrong = True
                continue
            sound_result = made(left, right)
            wrong |= not np.array_equal(found, sound_result, equal_nan=True)
    assert wrong
