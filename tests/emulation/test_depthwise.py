"""Convolutions of which each channel has a filter of its own, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.emulation.depthwise import (
    Call,
    Filters,
    convolution,
    exact,
    require_alike,
    stored,
    text,
    values,
    widened,
)
from tests.emulation.emulate import EmulationFault
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills

THREE, TWICE = "TapTiles<1, 3, 3, 1, 1, 1, {}>", "TapTiles<1, 3, 3, 2, 2, 1, {}>"
FIVE, SEVEN = "TapTiles<1, 5, 5, 2, 2, 1, {}>", "TapTiles<1, 7, 7, 1, 1, 1, {}>"
FAR, MANY = "TapTiles<1, 3, 3, 1, 1, 2, {}>", "TapTiles<1, 9, 8, 1, 1, 1, {}>"
LONG = "TapTiles<1, 1, 31, 1, 1, 1, {}>"
PAIRS, ONE = "TapTiles<2, 2, 2, 1, 1, 1, {}>", "TapTiles<1, 1, 1, 9, 9, 1, {}>"
ALONG, CUBE = "TapTiles<1, 1, 5, 1, 1, 1, {}>", "TapTiles<3, 3, 3, 1, 1, 1, {}>"
SAME = Filters.of((3, 3), 1, 1, 1)


def require_near(x: np.ndarray, weight: np.ndarray, filters: Filters, call: Call) -> None:
    """Within the error of a chain of fused multiply-adds."""
    x, weight = stored(x, call.storage), stored(weight, call.storage)
    found = convolution(x, weight, filters, call)
    wide, taps = widened(x, call.storage), widened(weight, call.storage)
    size = exact(abs(wide), abs(taps), filters)
    bound = 2.0**-24 * weight[0].size * size
    assert (abs(found - exact(wide, taps, filters)) <= bound).all()


# Sizes round the edges of a thread's tile and of a band of them.
CASES = [
    (THREE, Filters.of((3, 3), 1, 1, 1), (2, 9, 11, 34)),
    (THREE, Filters.of((3, 3), 1, 0, 0), (1, 6, 18, 34)),
    (THREE, Filters.of((3, 3), 1, 2, 2), (1, 1, 1, 2)),
    (THREE, Filters.of((3, 3), 1, 1, 1), (1, 33, 21, 2)),
    (THREE, Filters.of((3, 3), 1, 1, 1), (2, 8, 36, 2)),
    (THREE, Filters.of((3, 3), 1, 1, 1), (2, 11, 29, 2)),
    (TWICE, Filters.of((3, 3), 2, 1, 1), (2, 15, 16, 6)),
    (TWICE, Filters.of((3, 3), 2, 0, 1), (1, 8, 8, 6)),
    (FIVE, Filters.of((5, 5), 2, 2, 2), (1, 14, 9, 10)),
    (SEVEN, Filters.of((7, 7), 1, 3, 3), (1, 7, 8, 34)),
    (SEVEN, Filters((7, 7), (1, 1), (5, 0), (2, 1), (1, 1)), (1, 9, 10, 2)),
    (ALONG, Filters.of((5,), 1, 2, 2), (2, 37, 6)),
    (FAR, Filters.of((3, 3), 1, 2, 2, 2), (2, 9, 11, 2)),
    (FAR, Filters.of((3, 3), 1, 2, 0, 2), (1, 6, 12, 2)),
    (MANY, Filters.of((9, 8), 1, 4, 3), (1, 11, 13, 2)),
    (MANY, Filters.of((9, 8), 1, 8, 9), (1, 3, 4, 2)),
    (LONG, Filters((31,), (1,), (15,), (15,), (1,)), (2, 43, 2)),
    (PAIRS, Filters.of((2, 2, 2), 1, 1, 0), (1, 3, 6, 9, 2)),
    (ONE, Filters.of((1, 1), 9), (1, 29, 39, 2)),
    (CUBE, Filters.of((3, 3, 3), 1, 1, 1), (1, 3, 6, 5, 2)),
    (CUBE, Filters((3, 3, 3), (2, 1, 1), (1, 1, 1), (1, 1, 1), (2, 1, 1)), (2, 5, 5, 6, 2)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_are_near_float64(case: tuple[str, Filters, tuple[int, ...]]) -> None:
    tiles, filters, shape = case
    x, weight = values(*shape), values(shape[-1], *filters.taps, seed=1)
    require_near(x, weight, filters, Call(tiles))
    require_near(x, weight, filters, Call("AnyTaps"))


@pytest.mark.parametrize("storage", ["half", "bfloat16"])
@pytest.mark.parametrize("tiles", [THREE, TWICE, PAIRS, FAR, "AnyTaps"])
def test_other_storage(tiles: str, storage: str) -> None:
    filters = {
        TWICE: Filters.of((3, 3), 2, 1, 1),
        PAIRS: Filters.of((2, 2, 2), 1, 1, 1),
        FAR: Filters.of((3, 3), 1, 2, 2, 2),
    }.get(tiles, SAME)
    x, weight = values(1, *(6, 9, 11)[-len(filters.taps) :], 6), values(6, *filters.taps, seed=1)
    require_near(x, weight, filters, Call(tiles, storage))


def seeded(seed: int) -> tuple[Filters, tuple[int, ...], int]:
    """Filters of any kind, the shape of x, and how many channels come of one."""
    random = np.random.default_rng(seed)
    rank = int(random.integers(1, 4))
    taps = tuple(int(n) for n in random.integers(1, (0, 40, 8, 4)[rank], rank))
    sides = [
        tuple(int(n) for n in random.integers(low, high, rank))
        for low, high in ((1, 4), (0, 4), (0, 4), (1, 4))
    ]
    filters = Filters(taps, *sides)
    reach = [far * (n - 1) + 1 for n, far in zip(taps, filters.dilation, strict=True)]
    extent = [int(n + random.integers(0, 6)) for n in reach]
    channels = int(random.choice([1, 2, 3, 7, 8, 33]))
    return filters, (int(random.integers(1, 3)), *extent, channels), int(random.integers(1, 4))


@pytest.mark.parametrize("seed", range(16))
def test_any_filters_are_near_float64(seed: int) -> None:
    filters, shape, multiplier = seeded(seed)
    x, weight = values(*shape), values(shape[-1] * multiplier, *filters.taps, seed=1)
    require_near(x, weight, filters, Call("AnyTaps", lanes=1 + seed % 2))


@pytest.mark.parametrize(
    "call",
    [
        Call(THREE, lanes=1),
        Call(THREE, narrow=False),
        Call(THREE, aligned=False),
        Call(THREE, shift=1),
        Call(THREE, multiprocessors=132),
    ],
    ids=str,
)
def test_calls_of_any_kind_give_the_same(call: Call) -> None:
    x, weight = values(2, 6, 9, 6), values(6, 3, 3, seed=1)
    np.testing.assert_array_equal(
        convolution(x, weight, SAME, call), convolution(x, weight, SAME, Call(THREE))
    )


def test_what_tiles_do_not_take_is_made_without_them() -> None:
    for filters, channels, multiplier in (
        (SAME, 5, 1),
        (SAME, 4, 2),
        (replace(SAME, dilation=(2, 1)), 4, 1),
        (replace(SAME, stride=(1, 2)), 4, 1),
        (Filters.of((3, 2), 1, 1, 1), 4, 1),
    ):
        x = values(1, 6, 9, channels)
        weight = values(channels * multiplier, *filters.taps, seed=1)
        require_near(x, weight, filters, Call(THREE))


def test_x_of_other_strides() -> None:
    wide, weight = values(3, 8, 12, 12), values(6, 3, 3, seed=1)
    for x in (wide[:, :, :, :6], wide[:, 1:-1, 2:-2, 4:10], wide[::2, ::2, ::3, :6]):
        for tiles in (THREE, "AnyTaps"):
            require_near(x, weight, SAME, Call(tiles))


def test_nothing_where_there_are_no_images_and_zeros_where_x_has_no_places() -> None:
    weight = values(4, 3, 3)
    for tiles in (THREE, "AnyTaps"):
        assert convolution(values(0, 5, 5, 4), weight, SAME, Call(tiles)).size == 0
        wide = Filters.of((3, 3), 1, 2, 2)
        found = convolution(values(1, 0, 4, 4), weight, wide, Call(tiles))
        np.testing.assert_array_equal(found, np.zeros((1, 2, 6, 4)))


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("tiles", [THREE, "AnyTaps"])
def test_inf_and_nan_propagate_to_the_windows_that_read_them(tiles: str, odd: float) -> None:
    x, weight = values(1, 7, 8, 34), values(34, 3, 3, seed=1)
    for at in ((0, 0, 0, 3), (0, 6, 7, 3), (0, 3, 4, 3)):
        changed = x.copy()
        changed[at] = odd
        require_alike(convolution(changed, weight, SAME, Call(tiles)), _true(changed, weight))


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("tiles", [THREE, "AnyTaps"])
def test_a_tap_that_is_not_finite_adds_nothing_beside_x(tiles: str, odd: float) -> None:
    x, weight = values(2, 7, 9, 34), values(34, 3, 3, seed=1)
    weight[3, 0, 0] = weight[33, 2, 1] = odd
    x[0, 2, 2, 3] = 0.0
    require_alike(convolution(x, weight, SAME, Call(tiles)), _true(x, weight))


def _true(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return exact(x.astype(np.float64), weight.astype(np.float64), SAME)


def test_sums_of_negative_zeros_are_zero() -> None:
    x, weight = np.full((1, 4, 4, 2), -0.0, np.float32), np.ones((2, 3, 3), np.float32)
    for tiles in (THREE, "AnyTaps"):
        assert not np.signbit(convolution(x, weight, SAME, Call(tiles))).any()


def test_sums_are_chains_in_the_order_of_taps() -> None:
    """Of values that another order would round otherwise."""
    scale = 2.0 ** np.random.default_rng(2).integers(-20, 20, (5, 6, 1))
    x = values(1, 5, 6, 2) * scale.astype(np.float32)
    weight = values(2, 3, 3, seed=1)
    chain = np.zeros((1, 3, 4, 2), np.float32)
    for i, j in np.ndindex(3, 3):
        added = x[:, i : i + 3, j : j + 4].astype(np.float64) * weight[:, i, j]
        chain = (chain + added).astype(np.float32)
    for tiles in (THREE, "AnyTaps"):
        found = convolution(x, weight, Filters.of((3, 3)), Call(tiles))
        np.testing.assert_allclose(found, chain, rtol=2.0**-22)


def test_nothing_beside_the_operands_is_read() -> None:
    x, weight = values(1, 6, 7, 34), values(34, 3, 3, seed=1)
    for tiles in (THREE, "AnyTaps"):
        guarded = Call(tiles, options={"guard": "front"})
        np.testing.assert_array_equal(
            convolution(x, weight, SAME, guarded), convolution(x, weight, SAME, Call(tiles))
        )


def test_the_order_of_threads_changes_nothing() -> None:
    x, weight = values(1, 6, 19, 34), values(34, 3, 3, seed=1)
    for tiles in (THREE, "AnyTaps"):
        first = convolution(x, weight, SAME, Call(tiles))
        for order in ("reverse", "seeded"):
            call = Call(tiles, options={"order": order})
            np.testing.assert_array_equal(convolution(x, weight, SAME, call), first)


def test_places_past_31_bits_are_refused() -> None:
    x, weight = values(1, 4, 4, 2), values(2, 3, 3, seed=1)
    far = replace(SAME, dilation=(1 << 30, 1), before=(1 << 30, 1), after=(1 << 30, 1))
    with pytest.raises(EmulationFault, match="ended with|returned"):
        convolution(x, weight, far, Call("AnyTaps"))


# What the tests above would not let pass.
BROKEN = [
    ("int(c.stride[1]) - int(c.padding[1])", "int(c.stride[1]) - int(c.padding[1]) + 1"),
    ("if (found >> j & 1)", "if (found)"),
    ("unsigned(row + i) < unsigned(c.extent[1])", "true"),
    ("s * Tile::kDilation", "(s + 1) % Tile::kTapsAcross * Tile::kDilation"),
    ("rows < kRows ? rows : kRows", "kRows"),
    ("columns < kColumns ? columns : kColumns", "kColumns"),
    ("const bool finite = __syncthreads_and(own_finite);", "const bool finite = own_finite;"),
    ("if (!exists) return;", ""),
]
BROKEN_SUMS = [
    ("unsigned(column + q * step) >= unsigned(width)", "false"),
    ("unsigned(row) < unsigned(c.extent[1])", "true"),
    ("int tap = first % taps[2]", "int tap = 0"),
    ("if (++tap == taps[2])", "if (++tap > taps[2])"),
    ("channel / c.multiplier", "channel % (c.channels / c.multiplier)"),
    ("__syncthreads();  // all have used those before", ""),
]


def _is_noticed(
    x: np.ndarray, weight: np.ndarray, filters: Filters, call: Call, source: str
) -> bool:
    """Whether a kernel does what no kernel may, or is wrong."""
    true = exact(x.astype(np.float64), weight.astype(np.float64), filters)
    try:
        found = [
            convolution(x, weight, filters, replace(call, options={"order": order}), source)
            for order in ("forward", "reverse")
        ]
    except (EmulationFault, AssertionError):
        return True
    return any(not np.allclose(each, true, rtol=1e-4, atol=1e-4) for each in found)


@pytest.mark.parametrize("change", BROKEN, ids=str)
def test_broken_tiles_are_noticed(change: tuple[str, str]) -> None:
    x, weight, call = values(1, 5, 9, 34), values(34, 3, 3, seed=1), Call(THREE)
    source = text(call.tiles.format(34), call.storage, call.lanes)
    assert not _is_noticed(x, weight, SAME, call, source)
    assert change[0] in source
    assert _is_noticed(x, weight, SAME, call, source.replace(*change))


@pytest.mark.parametrize("change", BROKEN_SUMS, ids=str)
def test_broken_sums_are_noticed(change: tuple[str, str]) -> None:
    x, weight = values(1, 9, 11, 3), values(6, 7, 9, seed=1)
    call, filters = Call("AnyTaps"), Filters.of((7, 9), 1, 3, 4)
    source = text(call.tiles.format(x.shape[-1]), call.storage, call.lanes)
    assert not _is_noticed(x, weight, filters, call, source)
    assert change[0] in source
    assert _is_noticed(x, weight, filters, call, source.replace(*change))


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_90a", pytest.param("sm_80", marks=pytest.mark.slow)])
@pytest.mark.parametrize("storage", ["float", "bfloat16"])
@pytest.mark.parametrize("tiles", [THREE, TWICE, FIVE, SEVEN, FAR, CUBE])
def test_the_kernels_compile_without_warnings_and_spills(
    tiles: str, storage: str, arch: str
) -> None:
    require_no_spills(compile_cuda(text(tiles.format(96), storage, 2), arch))
