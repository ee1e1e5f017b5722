"""float32 products with TF32 allowed, on the tensor cores: operands as halves of 11 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.emulation.distributions import ROWS, distributions, drowning, error, exact, rounded
from tests.emulation.emulate import EmulationFault
from tests.emulation.products import Call, needs, product, text
from tests.emulation.split_copy import read_copy, split_copy

TF32 = Call("Tf32", lanes=1, family="mma")
CHAIN = Call("Tf32", lanes=1)


def normal(*rows: int, k: int) -> list[np.ndarray]:
    random = np.random.default_rng(k)
    return [random.standard_normal((1, count, k)).astype(np.float32) for count in rows]


def require_as_exact(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """As exact as operands rounded to 11 bits, summed exactly, and 2^-22 for the sums."""
    assert error(found, a, b) <= 1.01 * error(exact(rounded(a), rounded(b)), a, b) + 2.0**-22


@pytest.mark.parametrize("k", [256, pytest.param(2048, marks=pytest.mark.slow)])
def test_errors_are_no_larger_than_those_of_operands_rounded_to_11_bits(k: int) -> None:
    for name, (a, b) in distributions(k).items():
        found = product(a, b, TF32)
        require_as_exact(found, a, b)
        # Half holds these values' 11 bits under the scales: no other kernel makes the product.
        assert error(found, rounded(a), rounded(b)) <= 2.0**-20 < error(found, a, b), name


@pytest.mark.parametrize("k", [31, 1, 32, 33, 63, 64, 65, 1000])
def test_sums_of_any_length(k: int) -> None:
    a, b = normal(20, 18, k=k)
    held = np.zeros(needs([1, 20, 18, k], TF32)[1], np.uint8) if k > 32 else None
    for form in (None, held, held):
        found = product(a, b, TF32, held=form)
        require_as_exact(found, a, b)
        few = error(found, a, b) < 1e-6
        assert few == (k <= 32), "short sums are of float32 operands as they are"


def graded(exponent: float, k: int) -> tuple[np.ndarray, np.ndarray]:
    a, b = normal(ROWS, ROWS, k=k)
    grade = np.exp2(np.linspace(-exponent, exponent, k)).astype(np.float32)
    return a * grade, b * grade


def beside_zeros(huge: float, k: int) -> tuple[np.ndarray, np.ndarray]:
    """One column of a is huge, and half of the rows of b are zero there."""
    a, b = normal(ROWS, ROWS, k=k)
    a[:, :, 70], b[:, ::2, 70] = huge, 0
    return a, b


def one_a_row(huge: float, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A huge element in each row of a, and many zeros in b."""
    a, b = normal(ROWS, ROWS, k=k)
    a[0, np.arange(ROWS), np.arange(ROWS) * 5 + 3] = huge
    return a, np.maximum(b, 0)


def turned(huge: float, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A column of b is huge, and half of the rows of a are zero there."""
    return beside_zeros(huge, k)[::-1]


MISFITS = {"beside zeros": beside_zeros, "one a row": one_a_row}


@pytest.mark.parametrize("form", [beside_zeros, one_a_row, turned])
@pytest.mark.parametrize("bits", [20, 24, 26, 30, 40, 60])
def test_one_huge_value_hides_no_others(
    bits: int, form: Callable[[float, int], tuple[np.ndarray, np.ndarray]]
) -> None:
    a, b = form(2.0**bits, 192)
    require_as_exact(product(a, b, TF32), a, b)


@pytest.mark.parametrize("bits", [22, 28, 60])
def test_many_huge_values_hide_no_others(bits: int) -> None:
    for a, b in drowning(192, bits).values():
        require_as_exact(product(a, b, TF32), a, b)


@pytest.mark.parametrize("bits", [20, 40, 50])
def test_values_of_all_sizes(bits: int) -> None:
    random = np.random.default_rng(bits)
    shape = (1, ROWS, 192)
    wide = [np.exp2(random.uniform(-bits, bits, shape)).astype(np.float32) for _ in range(2)]
    for a, b in (wide, graded(bits, 192)):
        require_as_exact(product(a, b, TF32), a, b)


@pytest.mark.parametrize("misfit", MISFITS)
def test_what_does_not_fit_is_the_float32_kernels(misfit: str) -> None:
    for bits, fits in ((20, True), (30, False)):
        a, b = MISFITS[misfit](2.0**bits, 192)
        alike = product(a, b, TF32) == product(a, b, CHAIN)
        assert alike.all() != fits


@pytest.mark.parametrize("odd", [np.inf, np.nan, 3e38, 1e-42])
@pytest.mark.parametrize("side", [0, 1])
def test_odd_values_reach_what_they_reach_in_float32(odd: float, side: int) -> None:
    operands = normal(20, 18, k=96)
    operands[side][0, 3] = odd
    np.testing.assert_array_equal(product(*operands, TF32), product(*operands, CHAIN))


@pytest.mark.parametrize("changed", [True, False], ids=["anew", "refreshed"])
@pytest.mark.parametrize("layout", ["along", "across"])
def test_a_copy_of_one_part_is_what_its_definition_says(layout: str, changed: bool) -> None:
    (b,) = normal(70, k=200)
    b[:, 9, 20:40] = 0
    laid = b
    if layout == "across":
        laid = np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1)
    held = np.zeros(needs([1, 17, 70, 200], TF32)[1], np.uint8)
    (a,) = normal(17, k=200)
    found = product(a, laid, replace(TF32, changed=changed), held=held)
    copy, expected = read_copy(held, 1, 70, 200, parts=1), split_copy(b, parts=1)
    for part in ("column_max", "scale", "packed"):
        np.testing.assert_array_equal(getattr(copy, part), getattr(expected, part))
    assert (copy.needs_fallback, copy.lossy) == (expected.needs_fallback, expected.lossy)
    np.testing.assert_array_equal(product(a, laid, TF32, held=held), found)
    np.testing.assert_array_equal(product(a, b, TF32), found)


def test_a_copy_takes_half_the_memory_of_two_parts() -> None:
    extents = [1, 20, 256, 1024]
    one, two = (needs(extents, replace(TF32, mode=mode))[1] for mode in ("Tf32", "Faithful"))
    assert two - one == 2 * 256 * 1024


FAULTS = {
    "a part that is cut off": (
        "upper[i] = __float2half_rn(x);",
        "upper[i] = __float2half_rn(__uint_as_float(__float_as_uint(x) & 0xFFFFE000u));",
    ),
    "no sum drowns": ("0x1p17f : 0x1p5f", "0x1p17f : 0x1p-99f"),
    "the chunks of two parts": (
        "constexpr int kDepth = 64 / kParts;",
        "constexpr int kDepth = 32;",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_splitting_shows(fault: str) -> None:
    sound, broken = FAULTS[fault]
    source = text(("Tf32",), lanes=(1,), family="mma")
    assert sound in source
    a, b = beside_zeros(2.0**40, 192) if fault == "no sum drowns" else normal(20, 18, k=96)
    with pytest.raises((AssertionError, EmulationFault)):
        require_as_exact(product(a, b, TF32, source=source.replace(sound, broken)), a, b)
