"""How a split copy of b is made: of any layout, by kernels of their own and the cooperative one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.emulation.emulate import EmulationFault
from tests.emulation.products import Call, needs, product, text
from tests.emulation.split_copy import Copy, read_copy, split_copy

MMA = Call(lanes=1, family="mma")


SOURCE = partial(text, ("Faithful",), lanes=(1,), family="mma")


def made(b: np.ndarray, *, changed: bool = True, source: str | None = None, shift: int = 0) -> Copy:
    batches, n, k = b.shape
    held = np.zeros(needs([batches, 17, n, k], MMA)[1], np.uint8)
    a = np.ones((batches, 17, k), np.float32)
    call = replace(MMA, changed=changed)
    product(a, b, call, held=held, source=source or SOURCE(), shift=shift)
    return read_copy(held, batches, n, k)


def require_alike(found: Copy, b: np.ndarray) -> None:
    expected = split_copy(b)
    np.testing.assert_array_equal(found.column_max, expected.column_max)
    np.testing.assert_array_equal(found.scale, expected.scale)
    np.testing.assert_array_equal(found.packed, expected.packed)
    assert (found.needs_fallback, found.lossy) == (expected.needs_fallback, expected.lossy)


def values(*shape: int, seed: int = 0) -> np.ndarray:
    """Of many sizes, some zero, one column all zero."""
    random = np.random.default_rng(seed)
    b = random.standard_normal(shape) * np.exp2(random.integers(-6, 6, (*shape[:2], 1)))
    b[random.random(shape) < 0.1] = 0
    b[:, :, 7] = 0
    return b.astype(np.float32)


def across(b: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1)


def within(b: np.ndarray, *, step: int) -> np.ndarray:
    """Rows `step` apart more than b is wide, in memory with values that do not count."""
    wide = np.full((*b.shape[:2], b.shape[2] + step), 1e9, np.float32)
    wide[:, :, : b.shape[2]] = b
    return wide[:, :, : b.shape[2]]


# Below one packet, spot, band and interval, at them, beyond; some of a block's parts whole.
EXTENTS = [(1, 20, 33), (1, 64, 128), (2, 70, 200), (3, 33, 77), (1, 140, 1090), (1, 301, 260)]


def each_column_largest(n: int, k: int) -> np.ndarray:
    """Rows whose largest value stands in each column in turn."""
    b = abs(values(1, n, k)) + 1
    b[0, np.arange(n), np.arange(n) % k] = 2.0**12
    return b


@pytest.mark.parametrize("changed", [True, False], ids=["anew", "refreshed"])
@pytest.mark.parametrize("layout", ["along", "across"])
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_a_copy_is_what_its_definition_says(
    extents: tuple[int, ...], layout: str, changed: bool
) -> None:
    b = values(*extents)
    require_alike(made(b if layout == "along" else across(b), changed=changed), b)


@pytest.mark.parametrize("layout", ["along", "across"])
@pytest.mark.parametrize("step", [1, 4])
def test_lines_may_lie_apart(step: int, layout: str) -> None:
    b = values(2, 132, 260)
    if layout == "along":
        return require_alike(made(within(b, step=step)), b)
    lines = within(np.ascontiguousarray(b.transpose(0, 2, 1)), step=step)
    require_alike(made(lines.transpose(0, 2, 1)), b)


@pytest.mark.parametrize("layout", ["along", "across"])
@pytest.mark.parametrize("shift", [1, 2])
def test_a_copy_may_be_made_of_any_address(shift: int, layout: str) -> None:
    b = values(1, 96, 192)
    require_alike(made(b if layout == "along" else across(b), shift=shift), b)


@pytest.mark.parametrize("layout", ["along", "across"])
def test_neighbours_may_lie_apart(layout: str) -> None:
    b = values(2, 70, 130)
    apart = np.repeat(b if layout == "along" else across(b), 3, axis=2)[:, :, ::3]
    require_alike(made(apart), b)


@pytest.mark.parametrize("few", [4, 5, 31])
def test_more_than_one_value_in_16_that_loses_digits(few: int) -> None:
    b = abs(values(1, 64, 256)) + 1
    b[0, 40, 130 : 130 + few] = 2.0**-24
    require_alike(made(b), b)
    assert made(b).lossy == (few > 4)
    b[0, 40, 128:160] = 0  # which lose none, and count as none
    b[0, 40, 130:133] = 2.0**-24
    require_alike(made(b), b)
    assert made(b).lossy


def test_the_order_of_threads_changes_no_bit() -> None:
    b = values(1, 130, 300)
    for laid in (b, across(b)):
        for order in ("reverse", "seeded"):
            held = np.zeros(needs([1, 17, 130, 300], MMA)[1], np.uint8)
            call = replace(MMA, changed=True, options={"order": order})
            product(np.ones((1, 17, 300), np.float32), laid, call, held=held, source=SOURCE())
            require_alike(read_copy(held, 1, 130, 300), b)


# What may be broken, and in which layout it shows.
FAULTS = {
    "turning": ("(row % 4 ^ k / 32 * 2)", "row % 4", "across"),
    "a group's place": ("Of::kAcross ^ k / 4 * kSpread % 8", "Of::kAcross", "across"),
    "rows of a thread": ("i < kOwnRows; ++i) most", "i < 3; ++i) most", ""),
    "rows of a warp": ("most, __shfl_xor_sync(~0u, most, kSpotThreads)", "most, most", ""),
    "lanes of a row": ("bits = max(bits, __shfl", "bits = max(bits, 0 * __shfl", ""),
    "columns of a spot": ("kSpotThreads * 4 + j], most", "kSpotThreads * 4], most", ""),
    "what was there before": ("space.most[threadIdx.x] = 0;", "", ""),
    "the place of an interval": ("&call.column_max[k]", "&call.column_max[threadIdx.x]", ""),
    "the place of a batch's rows": (
        "spot.batch * spots.rows + row], most",
        "row], most",
        "batches",
    ),
    "a spot that is not whole": ("row + Of::kBand <= spots.rows", "row <= spots.rows", "across"),
    "factors of columns": ("column_max, spot.k, spots.k, -1", "column_max, 0, spots.k, -1", ""),
    "who loses digits": ("? 15 : -1", "? 0 : -1", ""),
    "what a spot counts": ("step /= 2) excess", "step = 0) excess", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_making_a_copy_shows(fault: str) -> None:
    sound, broken, layout = FAULTS[fault]
    source = SOURCE()
    assert sound in source
    source = source.replace(sound, broken)
    many_small = abs(values(1, 64, 256)) + 1
    many_small[0, 40:44, 128:] = 1e-9
    with pytest.raises((EmulationFault, AssertionError)):
        batches = (values(3, 70, 200),) if layout == "batches" else ()
        for b in (*batches, values(1, 301, 900), each_column_largest(301, 260), many_small):
            require_alike(made(across(b) if layout == "across" else b, source=source), b)
