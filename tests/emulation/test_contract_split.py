"""float32 products on the tensor cores: operands split into halves, as exact as float32 sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.emulation.distributions import (
    ROWS,
    chain_of_fmas,
    distributions,
    drowning,
    error,
    exact,
    ordinary,
)
from tests.emulation.products import Call, makers, needs, product, text

MMA = Call(lanes=1, family="mma")
# The second path: what split operands do not fit.
FLOAT32 = Call(lanes=1)


@pytest.mark.parametrize("k", [256, pytest.param(2048, marks=pytest.mark.slow)])
def test_errors_are_no_larger_than_those_of_a_chain_of_fused_multiply_adds(k: int) -> None:
    for name, (a, b) in distributions(k).items():
        chain = error(chain_of_fmas(a, b), a, b)
        assert error(product(a, b, MMA), a, b) <= chain, name


def _few(k: int = 96) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    a, b = (random.standard_normal((1, rows, k)).astype(np.float32) for rows in (20, 18))
    return a, b


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-20, 1e20, 1e30, 2e37], ids=str)
def test_values_of_any_size_are_as_exact(scale: float) -> None:
    a, b = _few()
    a, b = a * np.float32(scale), b / np.float32(max(scale, 1e-30))
    chain = error(chain_of_fmas(a, b), a, b)
    assert error(product(a, b, MMA), a, b) <= max(chain, 2.0**-26)


@pytest.mark.parametrize("k", [256, pytest.param(2048, marks=pytest.mark.slow)])
def test_the_second_path_is_more_exact_than_a_chain(k: int) -> None:
    a, b = distributions(k)["normal"]
    assert error(product(a, b, FLOAT32), a, b) <= 0.5 * error(chain_of_fmas(a, b), a, b)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("huge", [1e8, 1e20, 3e38], ids=str)
def test_one_huge_value_hides_no_others(huge: float, side: int) -> None:
    operands = _few(1088)
    operands[side][0, 5, 70] = np.float32(huge)
    found, chain = product(*operands, MMA), chain_of_fmas(*operands)
    mine = [5, slice(None)] if side == 0 else [slice(None), 5]
    others = np.ones(found.shape[1:], bool)
    others[tuple(mine)] = False
    assert abs(found - exact(*operands))[0][others].max() <= 4 * (
        abs(chain - exact(*operands))[0][others].max() + 2.0**-20
    )


def test_products_of_subnormal_numbers_are_those_of_a_chain() -> None:
    a, b = _few()
    a = a * np.float32(1e-42)
    found = product(a, b, MMA)
    np.testing.assert_array_equal(found, product(a, b, FLOAT32))
    # Each of 96 steps rounds to a multiple of 2^-149.
    assert (abs(found - exact(a, b)) <= 96 * 2.0**-150).all() and (found != 0).all()


def test_sums_that_overflow_come_out_as_a_chains() -> None:
    a, b = _few()
    a, b = abs(a) * np.float32(1e25), abs(b) * np.float32(1e25)
    b[0, 3] = 1e-20
    found = product(a, b, MMA)
    np.testing.assert_array_equal(np.isinf(found), np.isinf(product(a, b, FLOAT32)))
    assert np.isinf(found).any() and np.isfinite(found[0, :, 3]).all()


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_value_that_is_not_finite_reaches_what_it_reaches_in_float32(
    odd: float, side: str
) -> None:
    a, b = _few()
    (a if side == "a" else b)[0, 3, 70] = odd
    (b if side == "a" else a)[0, 4, 70] = 0.0
    found, chain = product(a, b, MMA), product(a, b, FLOAT32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(chain))
    np.testing.assert_array_equal(found[np.isinf(chain)], chain[np.isinf(chain)])
    finite = np.isfinite(chain)
    np.testing.assert_allclose(found[finite], chain[finite], rtol=1e-4, atol=1e-4)


def test_the_order_of_threads_changes_nothing() -> None:
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((2, rows, 700)).astype(np.float32) for rows in (33, 19))
    first = product(a, b, MMA)
    for order in ("reverse", "seeded"):
        call = replace(MMA, options={"order": order})
        np.testing.assert_array_equal(product(a, b, call), first)


@pytest.mark.parametrize("mode", ["Faithful", "Half"])
def test_nothing_beside_the_operands_is_read(mode: str) -> None:
    a, b = (x.astype(np.float16) if mode == "Half" else x for x in _few(77))
    call = replace(MMA, mode=mode, options={"guard": "front"})
    for shift in (0, 1):
        found = product(a, b, call, shift=shift)
        np.testing.assert_array_equal(found, product(a, b, replace(MMA, mode=mode)))


def test_what_one_kernel_leaves_to_another_is_handed_over_once() -> None:
    random = np.random.default_rng(3)
    # Long enough to be summed in parts.
    a, b = (random.standard_normal((1, rows, 2048)).astype(np.float32) for rows in (20, 18))
    a[0, 3, 1500] = np.inf
    np.testing.assert_array_equal(product(a, b, MMA), product(a, b, FLOAT32))


# --- b held split from call to call ---


def _held(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    extents = [a.shape[0], a.shape[1], b.shape[1], a.shape[2]]
    bytes_ = needs(extents, MMA)[1]
    assert bytes_ > b.nbytes
    return np.zeros(bytes_, np.uint8)


def test_what_is_held_serves_the_next_call() -> None:
    a, b = _few()
    held = _held(a, b)
    first = product(a, b, MMA, held=held)
    np.testing.assert_array_equal(first, product(a, b, MMA))
    kept = held.copy()
    turned = np.ascontiguousarray(a[:, ::-1])
    np.testing.assert_array_equal(product(turned, b, MMA, held=held), first[:, ::-1])
    np.testing.assert_array_equal(held, kept)


def test_the_copy_and_not_b_is_read_while_it_holds() -> None:
    a, b = _few()
    held = _held(a, b)
    product(a, b, MMA, held=held)
    # The last bytes are of the packed rows: without them the product is another.
    held[-4096:] = 0
    assert error(product(a, b, MMA, held=held), a, b) > 1e-3
    again = product(a, b, replace(MMA, changed=True), held=held)
    np.testing.assert_array_equal(again, product(a, b, MMA))


def test_a_change_of_b_is_seen() -> None:
    a, b = _few()
    held = _held(a, b)
    product(a, b, MMA, held=held)
    b = b.copy()
    for position in ((0, 0, 0), (0, 9, 50), (0, 17, 95)):
        b[position] += 1.0
        found = product(a, b, MMA, held=held)
        np.testing.assert_array_equal(found, product(a, b, MMA))


def test_operands_out_of_range_are_remembered_with_the_copy() -> None:
    a, b = _few()
    b[0, 2, 5] = np.nan
    held = _held(a, b)
    for _ in range(2):
        found = product(a, b, MMA, held=held)
        np.testing.assert_array_equal(found, product(a, b, FLOAT32))
    b[0, 2, 5] = 1.0
    np.testing.assert_array_equal(product(a, b, MMA, held=held), product(a, b, MMA))


# --- digits that splitting loses ---


@pytest.mark.parametrize("bits", [18, 22, 28, 60])
def test_sums_that_large_values_drown_are_another_kernels(bits: int) -> None:
    for name, (a, b) in drowning(192, bits).items():
        chain = error(chain_of_fmas(a, b), a, b)
        assert error(product(a, b, MMA), a, b) <= chain, name
        assert makers(a, b, MMA) == 2 or name == "a value in each row of b, outliers in a"


def test_ordinary_operands_stay_on_the_tensor_cores() -> None:
    for name, (a, b) in ordinary(256).items():
        assert makers(a, b, MMA) == 1, name
        # Where a dozen terms of a sum are not zero a chain rounds little.
        assert error(product(a, b, MMA), a, b) <= 2 * error(chain_of_fmas(a, b), a, b), name


def _pattern(random: np.random.Generator, form: str, shape: tuple[int, ...]) -> np.ndarray:
    """Which values of an operand are large, or zero."""
    _, rows, k = shape
    share = random.choice([0.02, 0.1, 0.5, 0.9])
    return {
        "values": lambda: random.random(shape) < share,
        "columns": lambda: np.broadcast_to(random.random((1, 1, k)) < share, shape),
        "blocks": lambda: np.logical_xor.outer(np.arange(rows) % 2 == 0, np.arange(k) < share * k)[
            None
        ],
        "none": lambda: np.zeros(shape, bool),
    }[form]()


FORMS = st.sampled_from(["values", "columns", "blocks", "none"])


@given(st.integers(0, 2**32 - 1), st.integers(14, 60), *[FORMS] * 4, st.sampled_from([64, 200]))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_no_operands_lose_what_a_chain_keeps(
    seed: int, bits: int, large_a: str, zero_a: str, large_b: str, zero_b: str, k: int
) -> None:
    random = np.random.default_rng(seed)
    a, b = (random.standard_normal((1, ROWS, k)) for _ in range(2))
    a, b = (
        np.where(
            _pattern(random, zeros, values.shape),
            0,
            values * np.where(_pattern(random, large, values.shape), 2.0**bits, 1),
        ).astype(np.float32)
        for values, large, zeros in ((a, large_a, zero_a), (b, large_b, zero_b))
    )
    size = np.maximum(exact(abs(a), abs(b)), 1e-300)
    mine, chains = (
        np.sort((abs(found - exact(a, b)) / size).ravel())
        for found in (product(a, b, MMA), chain_of_fmas(a, b))
    )
    # Single sums among many may be left that lack digits. Where few values meet others than zeros a
    # chain rounds little: half an ulp of each product.
    most = int(0.98 * len(mine))
    rms, of_chain = (float(np.sqrt(np.mean(e[:most] ** 2))) for e in (mine, chains))
    assert rms <= 2 * of_chain + 2.0**-25


FAULTS = {
    "sums that drown let through": ("0x1p17f : 0x1p5f", "0x1p-99f : 0x1p5f"),
    "the scales of the fourth intervals only": (
        "i = threadIdx.x % 4; i < intervals",
        "i = 3; i < intervals",
    ),
    "a kept copy for another b": ("differs |= sample_of", "differs |= 0 & sample_of"),
    "what another block found": (
        "[blockIdx.x] = any_of_block",
        "[blockIdx.x] = blockIdx.x == 0 && any_of_block",
    ),
    "what was known of another copy": (
        "blockIdx.x == 0 && threadIdx.x == 0) *call.head = {}",
        "false) *call.head = {}",
    ),
    "values out of range let through": ("return largest == 0.0f ||", "return true ||"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_splitting_shows(fault: str) -> None:
    sound, broken = FAULTS[fault]
    source = text(("Faithful",), lanes=(1,), family="mma")
    assert sound in source
    source = source.replace(sound, broken)
    a, b = _few()
    if fault in ("a kept copy for another b", "what another block found"):
        held = _held(a, b)
        product(a, b, MMA, held=held, source=source)
        b[0, -1, -1] += 1.0
        found = product(a, b, MMA, held=held, source=source)
        assert (found != product(a, b, MMA)).any()
    elif fault == "what was known of another copy":
        held, one = _held(a, b), b[0, 2, 5].copy()
        b[0, 2, 5] = np.nan
        product(a, b, MMA, held=held, source=source)
        b[0, 2, 5] = one
        found = product(a, b, MMA, held=held, source=source)
        assert (found != product(a, b, MMA)).any()
    elif fault == "values out of range let through":
        a[0, 4, 5] = np.inf
        assert not np.isinf(product(a, b, MMA, source=source)[0, 4]).all()
    else:
        wrong = []
        for a, b in drowning(192, 28).values():
            chain = error(chain_of_fmas(a, b), a, b)
            wrong.append(error(product(a, b, MMA, source=source), a, b) > chain)
        assert any(wrong)
