"""Convolutions of planes, channels before their space, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.emulation.depthwise import Filters, require_alike, values
from tests.emulation.emulate import EmulationFault
from tests.emulation.planes import Call, convolution, exact, text, tiles_of
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills

SAME = Filters.of((3, 3), 1, 1, 1)
TWICE, SEVEN = Filters.of((3, 3), 2, 1, 1), Filters.of((7, 7), 1, 3, 3)
FAR, MANY = Filters.of((3, 3), 1, 2, 2, 2), Filters.of((9, 8), 1, 4, 3)
LONG, CUBE = Filters.of((31,), 1, 15, 15), Filters.of((3, 3, 3), 1, 1, 1)
UNEVEN = Filters((3, 2), (1, 2), (2, 0), (0, 1), (1, 3))
THREE = tiles_of(SAME)


def require_near(x: np.ndarray, weight: np.ndarray, filters: Filters, call: Call) -> None:
    """Within the error of a chain of fused multiply-adds."""
    found, wide, taps = convolution(x, weight, filters, call), *map(np.float64, (x, weight))
    bound = 2.0**-24 * weight[0].size * exact(abs(wide), abs(taps), filters)
    assert (abs(found - exact(wide, taps, filters)) <= bound).all()


# Sizes round the edges of a thread's places, of a block's tile, and of planes in a block.
CASES = [
    (SAME, (2, 3, 7, 12)),
    (SAME, (1, 2, 1, 1)),
    (SAME, (2, 3, 9, 11)),
    (SAME, (3, 5, 14, 14)),
    (SAME, (1, 2, 34, 96)),
    (SAME, (1, 1, 8, 515)),
    (SAME, (1, 1, 30, 300)),
    (SAME, (2, 40, 7, 7)),
    (Filters.of((3, 3)), (1, 2, 18, 34)),
    (Filters.of((3, 3), 1, 2, 2), (1, 2, 1, 1)),
    (TWICE, (2, 3, 15, 16)),
    (TWICE, (1, 2, 56, 64)),
    (Filters.of((3, 3), 2, 0, 1), (1, 3, 8, 8)),
    (Filters.of((5, 5), 2, 2, 2), (1, 3, 14, 9)),
    (SEVEN, (1, 2, 20, 9)),
    (SEVEN, (1, 3, 56, 56)),
    (Filters((7, 7), (1, 1), (5, 0), (2, 1), (1, 1)), (1, 2, 9, 10)),
    (FAR, (2, 3, 9, 12)),
    (FAR, (1, 2, 6, 13)),
    (MANY, (1, 2, 11, 13)),
    (Filters.of((9, 8), 1, 8, 9), (1, 2, 3, 4)),
    (UNEVEN, (2, 2, 9, 14)),
    (Filters.of((1, 1), 9), (1, 2, 29, 39)),
    (LONG, (2, 3, 43)),
    (LONG, (1, 1, 1030)),
    (Filters.of((4,), 1, 3), (2, 3, 64)),
    (CUBE, (1, 3, 3, 6, 5)),
    (Filters((3, 3, 3), (2, 1, 1), (1, 1, 1), (1, 1, 1), (2, 1, 1)), (2, 2, 5, 5, 8)),
    (Filters.of((2, 2, 2), 1, 1, 0), (1, 2, 3, 6, 9)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_are_near_float64(case: tuple[Filters, tuple[int, ...]]) -> None:
    filters, shape = case
    x, weight = values(*shape), values(shape[1], *filters.taps, seed=1)
    require_near(x, weight, filters, Call(tiles_of(filters)))
    require_near(x, weight, filters, Call())


@pytest.mark.parametrize("seed", range(12))
def test_any_filters_are_near_float64(seed: int) -> None:
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
    channels, multiplier = int(random.choice([1, 2, 7, 33])), int(random.integers(1, 4))
    x = values(int(random.integers(1, 3)), channels, *extent)
    weight = values(channels * multiplier, *taps, seed=1)
    require_near(x, weight, filters, Call(lanes=1 + 3 * (seed % 2)))


@pytest.mark.parametrize("filters", [SAME, TWICE], ids=str)
@pytest.mark.parametrize("multiplier", [2, 3])
def test_several_filters_read_a_plane(filters: Filters, multiplier: int) -> None:
    x, weight = values(2, 3, 6, 8), values(3 * multiplier, 3, 3, seed=1)
    require_near(x, weight, filters, Call(tiles_of(filters)))


@pytest.mark.parametrize(
    "call",
    [
        Call(THREE, lanes=1),
        Call(THREE, lanes=2),
        Call(THREE, narrow=False),
        Call(THREE, aligned=False),
        Call(THREE, shift=1),
        Call(THREE, multiprocessors=132),
        Call("AnyPlanes"),
        Call("AnyPlanes", narrow=False),
    ],
    ids=str,
)
def test_calls_of_any_kind_give_the_same(call: Call) -> None:
    x, weight = values(2, 3, 40, 12), values(3, 3, 3, seed=1)
    np.testing.assert_array_equal(
        convolution(x, weight, SAME, call), convolution(x, weight, SAME, Call(THREE))
    )


def test_what_tiles_do_not_take_is_made_without_them() -> None:
    others = (
        replace(SAME, dilation=(2, 1)),
        replace(SAME, stride=(1, 2)),
        replace(SAME, before=(1, 0)),
        Filters.of((3, 2), 1, 1, 1),
    )
    for filters in others:
        x, weight = values(1, 4, 6, 9), values(4, *filters.taps, seed=1)
        require_near(x, weight, filters, Call(THREE))


def test_what_does_not_fit_shared_memory_is_made_without_tiles() -> None:
    far = Filters((3, 3), (1, 1), (0, 1), (0, 1), (400, 1))
    require_near(values(1, 1, 803, 20), values(1, 3, 3, seed=1), far, Call(tiles_of(far)))


def test_x_and_taps_of_other_strides() -> None:
    wide, weight = values(3, 8, 12, 20), values(4, 3, 3, seed=1)
    given = [
        wide[:, :4, :, :12],  # rows with gaps, of which each begins at 16 bytes
        wide[:, :4, 1:-1, 2:-3],
        wide[::2, ::2, ::3, ::2],
        np.moveaxis(values(2, 9, 8, 4), -1, 1),  # channels last
        np.broadcast_to(wide[:, :1], (3, 4, 12, 20)),
    ]
    for tiles in (THREE, "AnyPlanes"):
        for x in given:
            require_near(x, weight, SAME, Call(tiles))
        for taps in (weight.transpose(0, 2, 1), np.broadcast_to(weight[:1], (4, 3, 3))):
            require_near(given[0], taps, SAME, Call(tiles))


def test_nothing_where_there_are_no_images_and_zeros_where_x_has_no_places() -> None:
    weight, wide = values(4, 3, 3), Filters.of((3, 3), 1, 2, 2)
    for tiles in (tiles_of(wide), "AnyPlanes"):
        assert convolution(values(0, 4, 5, 5), weight, wide, Call(tiles)).size == 0
        found = convolution(values(1, 4, 0, 4), weight, wide, Call(tiles))
        np.testing.assert_array_equal(found, np.zeros((1, 4, 2, 6)))


@pytest.mark.parametrize("width", [12, 13])
def test_what_lies_between_rows_is_never_read(width: int) -> None:
    wide, weight = values(2, 5, 9, 16), values(4, 3, 3, seed=1)
    alone = wide[:, :4, :, :width].copy()
    wide[:, :, :, width:] = wide[:, 4:] = np.nan
    for tiles in (THREE, "AnyPlanes"):
        found = convolution(wide[:, :4, :, :width], weight, SAME, Call(tiles))
        np.testing.assert_array_equal(found, convolution(alone, weight, SAME, Call(tiles)))


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("tiles", [THREE, "AnyPlanes"])
def test_inf_and_nan_propagate_to_the_windows_that_read_them(tiles: str, odd: float) -> None:
    x, weight = values(1, 5, 7, 8), values(5, 3, 3, seed=1)
    for at in ((0, 3, 0, 0), (0, 3, 6, 7), (0, 3, 3, 4)):
        changed = x.copy()
        changed[at] = odd
        require_alike(convolution(changed, weight, SAME, Call(tiles)), _true(changed, weight))


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("tiles", [THREE, "AnyPlanes"])
@pytest.mark.parametrize("width", [8, 9])
def test_a_tap_that_is_not_finite_adds_nothing_beside_x(tiles: str, odd: float, width: int) -> None:
    x, weight = values(2, 5, 7, width), values(5, 3, 3, seed=1)
    weight[3, 0, 0] = weight[4, 2, 1] = odd
    x[0, 3, 2, 2] = 0.0
    require_alike(convolution(x, weight, SAME, Call(tiles)), _true(x, weight))


def _true(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return exact(x.astype(np.float64), weight.astype(np.float64), SAME)


def test_sums_of_negative_zeros_are_zero() -> None:
    x, weight = np.full((1, 2, 4, 4), -0.0, np.float32), np.ones((2, 3, 3), np.float32)
    for tiles in (THREE, "AnyPlanes"):
        assert not np.signbit(convolution(x, weight, SAME, Call(tiles))).any()


def test_sums_are_chains_in_the_order_of_taps() -> None:
    """Of values that another order would round otherwise."""
    scale = 2.0 ** np.random.default_rng(2).integers(-20, 20, (5, 6))
    x, weight = values(1, 2, 5, 6) * scale.astype(np.float32), values(2, 3, 3, seed=1)
    chain, bare = np.zeros((1, 2, 3, 4), np.float32), Filters.of((3, 3))
    for i, j in np.ndindex(3, 3):
        taps = weight[:, i, j, None, None].astype(np.float64)
        chain = (chain + x[:, :, i : i + 3, j : j + 4] * taps).astype(np.float32)
    for tiles in (tiles_of(bare), "AnyPlanes"):
        np.testing.assert_allclose(convolution(x, weight, bare, Call(tiles)), chain, rtol=2.0**-22)


def test_nothing_beside_the_operands_is_read() -> None:
    x, weight = values(1, 5, 6, 8), values(5, 3, 3, seed=1)
    for tiles in (THREE, "AnyPlanes"):
        guarded = Call(tiles, options={"guard": "front"})
        np.testing.assert_array_equal(
            convolution(x, weight, SAME, guarded), convolution(x, weight, SAME, Call(tiles))
        )


@pytest.mark.parametrize("filters", [SAME, CUBE], ids=str)
def test_the_order_of_threads_changes_nothing(filters: Filters) -> None:
    x, weight = values(1, 5, *(3, 6, 18)[-len(filters.taps) :]), values(5, *filters.taps, seed=1)
    first = convolution(x, weight, filters, Call(tiles_of(filters)))
    for order in ("reverse", "seeded"):
        call = Call(tiles_of(filters), options={"order": order})
        np.testing.assert_array_equal(convolution(x, weight, filters, call), first)


def test_places_past_31_bits_are_refused() -> None:
    x, weight = values(1, 2, 4, 4), values(2, 3, 3, seed=1)
    far = replace(SAME, dilation=(1 << 30, 1), before=(1 << 30, 1), after=(1 << 30, 1))
    with pytest.raises(EmulationFault, match="ended with|returned"):
        convolution(x, weight, far, Call("AnyPlanes"))


# What the tests above would not let pass.
BROKEN = [
    ("int(c.padding[1]);", "int(c.padding[1]) + 1;"),
    ("unsigned(row + y) < unsigned(c.extent[1])", "true"),
    ("unsigned(place) < unsigned(c.extent[2])", "true"),
    ("unsigned(z) < unsigned(c.extent[0])", "true"),
    ("Tile::kShift + at", "at"),
    ("p >= kept_rows", "false"),
    ("while (y >= g.lines) y -= g.lines, ++of;", ""),
    ("there < g.slices ? there : g.slices", "g.slices"),
    ("column < left", "true"),
    ("const bool finite = __syncthreads_and(own_finite);", "const bool finite = own_finite;"),
    ("await_copies<0>();", ""),
    ("__syncthreads();  // all have read the rows before", ""),
    ("__syncthreads();  // all have read the rows of x, whose memory the sums take", ""),
    ("deep * Tile::kPlanePitch", "0"),
]
BROKEN_SUMS = [
    ("unsigned(place) < unsigned(c.extent[2])", "true"),
    ("unsigned(y) >= unsigned(c.extent[1])", "false"),
    ("if (column < c.result[2])", ""),
    ("j * gap", "j"),
    ("unsigned(z) >= unsigned(c.extent[0])", "false"),
    ("by.multiplier.quotient(channel)", "channel"),
    ("down * c.tap_step[1]", "down"),
]


def _is_noticed(shape: tuple[int, ...], filters: Filters, call: Call, source: str) -> bool:
    """Whether a kernel does what no kernel may, or is wrong."""
    x, weight = values(*shape), values(shape[1], *filters.taps, seed=1)
    true = exact(x.astype(np.float64), weight.astype(np.float64), filters)
    try:
        found = [
            convolution(x, weight, filters, replace(call, options={"order": order}), source)
            for order in ("forward", "reverse")
        ]
    except (EmulationFault, AssertionError):
        return True
    return any(not np.allclose(each, true, rtol=1e-4, atol=1e-4) for each in found)


# Planes in a block and one that is left over; planes that several blocks share.
SHAPES = [(1, 35, 3, 6, 5), (1, 1, 2, 71, 12), (1, 1, 2, 3, 517)]


@pytest.mark.parametrize("change", BROKEN, ids=str)
def test_broken_tiles_are_noticed(change: tuple[str, str]) -> None:
    call = Call(tiles_of(CUBE))
    source = text(call.tiles, call.lanes)
    assert change[0] in source
    broken = source.replace(*change)
    assert any(_is_noticed(shape, CUBE, call, broken) for shape in SHAPES)


@pytest.mark.parametrize("change", BROKEN_SUMS, ids=str)
def test_broken_sums_are_noticed(change: tuple[str, str]) -> None:
    source = text("AnyPlanes", 4)
    assert change[0] in source
    x, weight = values(1, 2, 3, 6, 5), values(4, 3, 3, 3, seed=1)
    broken = source.replace(*change)
    try:
        found = convolution(x, weight, CUBE, Call("AnyPlanes"), broken)
    except (EmulationFault, AssertionError):
        return
    true = exact(x.astype(np.float64), weight.astype(np.float64), CUBE)
    assert not np.allclose(found, true, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("filters", [SAME, TWICE, LONG, CUBE], ids=str)
@pytest.mark.parametrize("multiplier", [1, 2])
def test_x_with_its_channels_last(filters: Filters, multiplier: int) -> None:
    """Threads go along them; what is beside is not read."""
    wide = values(2, *(4, 5, 9)[-len(filters.taps) :], 12)
    x = np.moveaxis(wide[..., :7], -1, 1)
    weight = values(7 * multiplier, *filters.taps, seed=1)
    for tiles in (tiles_of(filters), "AnyPlanes"):
        require_near(x, weight, filters, Call(tiles))


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_90a", pytest.param("sm_80", marks=pytest.mark.slow)])
@pytest.mark.parametrize("filters", [SAME, TWICE, SEVEN, FAR, CUBE, LONG], ids=str)
def test_the_kernels_compile_without_warnings_and_spills(filters: Filters, arch: str) -> None:
    require_no_spills(compile_cuda(text(tiles_of(filters), 4), arch))
