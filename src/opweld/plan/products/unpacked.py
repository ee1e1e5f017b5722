"""Convolutions whose input is not packed in memory before: those of one tap, whose pixels are
multiplied as they lie, and those by halos, whose pixels are packed in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from ...ir.expr import product as product_of
from ...ir.kernels.convolution import COLUMNS, Blocks, Convolution, Halo
from ...ir.kernels.product import Mode
from ...ir.plan import ConvolutionSchedule, Sizes, number_at

# The copy engine moves rows of whole 16 bytes: channels of a pixel, or pixels of a channel.
_ALIGNED = 4
# Each tile of filters reads its pixels again, so that for very many packing them once takes less.
# For 1024 (of 256 channels, 14x14, 32 images; H200, 2026-11-29) it took 24.7 us, and packed 27.8,
# with channels last, 33.8 and 31 with channels first; more were not tried.
_MOST_FILTERS = 2048
# Up to so many channels a tile is hardly more than its end: those of 64 filters end while others
# are summed, and took 47.9 us where 128 took 52.1 (64 channels, 256 filters). Of 1024 channels it
# was 30.1 and 22.9.
_SHORT = 64
# The most channels of a sum in narrow tiles: of more, wide ones promote sums on the way, for which
# narrow ones have no registers.
_MOST_NARROW = 256
# Pixels of a tile, channels of a stage, bytes of a value.
_ROWS, _WIDTH, _ITEM = 128, 32, 4
# At what rate tiles come to multiprocessors, and the share of what a copy takes that is added;
# fitted to five convolutions (H200, 2026-11-29): those of 16 channels, or of less than 20 us, take
# up to twice as long.
_RATE, _SHARE = 6.9e12, 0.7


def is_unpacked(made: Convolution, mode: Mode) -> bool:
    """Whether the kernel of one tap makes it, which rounds to TF32 and steps from pixel to pixel;
    x lies in the order of its axes, with channels first or last. Where it lies otherwise when it
    is called it is copied with its channels last.
    """
    if mode is not Mode.TF32 or made.depthwise or made.transposed or any(made.padding):
        return False
    windows, rank, channel = made.windows, len(made.axes), made.axes[-1]
    if any(n != 1 for n in (*windows.kernel, *made.stride)) or channel not in (1, rank - 1):
        return False
    if made.axes[:-1] != tuple(axis for axis in range(rank) if axis != channel):
        return False
    row = windows.channels if channel == rank - 1 else product_of(windows.space)
    if any(not isinstance(n, int) or n % _ALIGNED for n in (row, windows.channels)):
        return False
    return number_at(windows.filters) <= _MOST_FILTERS


def schedule_unpacked(made: Convolution, mode: Mode, lanes: int) -> ConvolutionSchedule:
    """Wide tiles, which read pixels for more filters at once, where there are as many and sums are
    long; for long sums in any case.
    """
    channels, filters = number_at(made.windows.channels), number_at(made.windows.filters)
    gains_nothing = filters <= 64 or (filters > 128 and channels <= _SHORT)
    narrow = gains_nothing and channels <= _MOST_NARROW
    return ConvolutionSchedule(mode, 64 if narrow else 128, lanes, unpacked=True)


def estimate_unpacked(made: Convolution, columns: int, moved_us: float, sizes: Sizes) -> float:
    """Microseconds of tiles of so many columns; `moved_us`: what reading x and writing the result
    takes at a copy's speed.
    """
    windows = made.windows
    counts = (
        (windows.rows, _ROWS),
        (windows.filters, columns),
        (windows.channels, _WIDTH),
    )
    stages = 1
    for count, each in counts:
        stages *= -(-number_at(count, sizes) // each)
    return stages * (_ROWS + columns) * _WIDTH * _ITEM / _RATE * 1e6 + _SHARE * moved_us


# --- by halos ---

# Plans do not choose them yet: earlier forms of their kernel were up to 1.5 times as fast as the
# windows of packed pixels on an H200 (benchmarks/results/halo-variants-nvidia-h200.log). This one,
# whose ends and copies are others, has run in the emulation alone.
HALOS_ARE_CHOSEN = False
# Of a tile of halo.cuh: output pixels, those of a block, channels of an interval, rows that the
# halos of a tile may have, bytes of them, taps.
_TILE, _BLOCK, _EACH = 256, 64, 8
_HALO_BYTES, _MOST_TAPS, _MOST_BOX = 50 * 1024, 512, 1024
# Microseconds of a tile of so many columns: of a tap of 64 channels, of packing a row of them in
# lines, of an interval's begin, and of its end (H200, 2026-11-30,
# benchmarks/results/halo-variants-nvidia-h200.log).
_TAP_US, _HALO_END_US = {64: 0.27, 128: 0.54}, {64: 4.5, 128: 9.0}
_ROW_US, _INTERVAL_US = {64: 0.012, 128: 0.016}, 0.5
# What a row costs more in squares, whose lines of pixels are short.
_SQUARES = 1.3
# A channel of a pixel packed in memory, at 4 TB/s, and one of 132 multiprocessors.
_PACK_US = 6 / 4e12 * 132 * 1e6
# Below so many tiles, a few for each multiprocessor, the first halo is waited for too long.
_LEAST_TILES = 4 * 132


@dataclass(frozen=True, slots=True)
class ByHalos:
    """How a convolution would be made by halos: in so many tiles, whose microseconds, one after the
    other on one multiprocessor, are `us`.
    """

    columns: int
    width: int
    halo: Halo
    tiles: int
    us: float


def by_halos(made: Convolution, mode: Mode, tile_us: float) -> ByHalos | None:
    """The fastest of those that the kernel of halos takes, of x with its channels first, where
    tiles of windows, which are packed in memory before, take a multiprocessor `tile_us`.
    """
    if not HALOS_ARE_CHOSEN or not _has_halos(made, mode):
        return None
    widths = (32,) if number_at(made.windows.channels) <= 32 else (64, 32)
    halos = [Halo(*each) for each in product(Blocks, (1, 2, 4))]
    found = (_made_by(made, *each) for each in product(COLUMNS, widths, halos))
    best = min((each for each in found if each), key=lambda each: each.us, default=None)
    if best is None or best.tiles < _LEAST_TILES:
        return None
    row_us = tile_us / _ROWS + number_at(made.windows.channels) * _PACK_US
    return best if best.us < row_us * number_at(made.windows.rows) else None


def halos_us(made: Convolution, schedule: ConvolutionSchedule) -> float:
    """The microseconds of its tiles, one after the other on one multiprocessor."""
    assert schedule.halo is not None, "it is made by halos"
    found = _made_by(made, schedule.columns, schedule.width, schedule.halo)
    assert found is not None, "its halos fit"
    return found.us


def _has_halos(made: Convolution, mode: Mode) -> bool:
    windows = made.windows
    if mode is not Mode.TF32 or made.depthwise or made.transposed:
        return False
    if made.axes != (0, *range(2, len(made.axes)), 1) or any(n != 1 for n in made.stride):
        return False
    if any(not isinstance(n, int) for n in (*windows.kernel, windows.channels, windows.filters)):
        return False
    return number_at(windows.channels) % _EACH == 0 and (
        1 < prod(map(number_at, windows.kernel)) <= _MOST_TAPS
    )


def _made_by(made: Convolution, columns: int, width: int, halo: Halo) -> ByHalos | None:
    """With these patches, if the halos of a tile fit."""
    windows = made.windows
    kernel, out = (tuple(map(number_at, each)) for each in (windows.kernel, windows.out))
    ones = (1,) * (3 - len(kernel))
    patch = halo.patch(_BLOCK)
    reach = (*ones, *((n - 1) * step + 1 for n, step in zip(kernel, made.dilation, strict=True)))
    box = [n + r - 1 for n, r in zip(patch, reach, strict=True)]
    patches = _TILE // _BLOCK // halo.count
    rows = prod(box) * patches
    if rows > _HALO_BYTES // (2 * width) or max(box) >= _MOST_BOX:
        return None
    counts = [ceil(n / p) for n, p in zip((*ones, *out), patch, strict=True)]
    tiles = ceil(number_at(windows.batch) * prod(counts) / patches)
    tiles *= ceil(number_at(windows.filters) / columns)
    intervals = ceil(number_at(windows.channels) / width)
    row_us = _ROW_US[columns] * (_SQUARES if halo.blocks.squares else 1.0)
    of_interval = (prod(kernel) * _TAP_US[columns] + rows * row_us) * width / _BLOCK + _INTERVAL_US
    return ByHalos(
        columns, width, halo, tiles, tiles * (intervals * of_interval + _HALO_END_US[columns])
    )
