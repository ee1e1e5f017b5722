"""Convolutions that read a pixel once for all taps: those of one tap, whose pixels are multiplied
as they lie, and those by halos, which come to shared memory whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from ...ir.expr import product as product_of
from ...ir.kernels.convolution import COLUMNS, INTERVAL, Blocks, Convolution, Halo
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
    if mode is not Mode.TF32 or _has_other_kernels(made) or any(made.padding):
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


def _has_other_kernels(made: Convolution) -> bool:
    """Whether it is one of a channel by itself, transposed or of groups."""
    return made.depthwise or made.transposed or made.groups > 1


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

# Of a tile of halo.cuh: output pixels, those of a block, bytes of its halos by its columns, taps,
# pixels of a copy along an axis.
_TILE, _BLOCK = 256, 128
_HALO_BYTES, _MOST_TAPS, _MOST_BOX = {64: 58 * 1024, 128: 120 * 1024}, 512, 256
# Microseconds of a tile of so many columns, of a tap of 64 channels and of its end, where two tiles
# share a multiprocessor half of what both take (H200, 2026-11-30, from twelve convolutions:
# benchmarks/results/halo-variants-nvidia-h200.log).
_TAP_US = {64: 0.37, 128: 0.74}
# Ends of tiles of so many columns with channels first, and with them last (H200, 2026-12-01); with
# channels first four pixels are given at once, or one where lines have no whole fours.
_HALO_END_US = {True: {64: 4.1, 128: 4.0}, False: {64: 5.5, 128: 9.0}}
_ONE_BY_ONE_US = 13.0
_AT_ONCE = {64: 2, 128: 1}
# What an interval of wide tiles waits for its halo where there is memory for no other one.
_SINGLE_US = 1.0
_MULTIPROCESSORS = 132  # of an H200, whose microseconds these are


@dataclass(frozen=True, slots=True)
class ByHalos:
    """How a convolution would be made by halos: in so many tiles, which take `us` microseconds on
    one multiprocessor, one after the other, or as long as all of them stand in whole waves.
    """

    columns: int
    width: int
    halo: Halo
    tiles: int
    us: float


def by_halos(
    made: Convolution,
    mode: Mode,
    tile_us: float,
    sizes: Sizes = (),
    channels_first: bool = True,
) -> ByHalos | None:
    """The fastest of those that the kernel of halos takes, for a result with its `channels_first`
    or last, where tiles of windows take a multiprocessor `tile_us`; both have their pixels packed
    before.
    """
    if not _has_halos(made, mode) or not (channels_first or len(made.out) == 2):
        return None  # of other ranks those with channels last took twice the time of windows
    widths = (32,) if number_at(made.windows.channels) <= 32 else (64, 32)
    # of two beside each other longer lines are written
    halos = [Halo(*each) for each in product(Blocks, (2, 1))]
    found = (
        _made_by(made, *each, sizes, channels_first) for each in product(COLUMNS, widths, halos)
    )
    best = min(filter(None, found), key=lambda each: (each.us, each.tiles), default=None)
    if best is None or best.us >= tile_us / _ROWS * number_at(made.windows.rows, sizes):
        return None
    return best


def halos_us(
    made: Convolution, schedule: ConvolutionSchedule, sizes: Sizes, channels_first: bool
) -> float:
    """The microseconds of its tiles, one after the other on one multiprocessor."""
    assert schedule.halo is not None, "it is made by halos"
    forms = schedule.columns, schedule.width, schedule.halo
    found = _made_by(made, *forms, sizes, channels_first)
    assert found is not None, "its halos fit"
    return found.us


def _has_halos(made: Convolution, mode: Mode) -> bool:
    windows = made.windows
    if mode is not Mode.TF32 or _has_other_kernels(made):
        return False
    if any(n != 1 for n in made.stride):
        return False
    if any(not isinstance(n, int) for n in (*windows.kernel, windows.channels, windows.filters)):
        return False
    return 1 < prod(map(number_at, windows.kernel)) <= _MOST_TAPS


def _made_by(
    made: Convolution, columns: int, width: int, halo: Halo, sizes: Sizes, channels_first: bool
) -> ByHalos | None:
    """With these patches, if the halos of a tile fit."""
    windows = made.windows
    kernel, out = (
        tuple(number_at(n, sizes) for n in each) for each in (windows.kernel, windows.out)
    )
    patches = _TILE // _BLOCK // halo.count
    rows = _rows(made, halo)
    buffers = 0 if rows is None else _HALO_BYTES[columns] // (rows * patches * 2 * width)
    if buffers == 0:
        return None
    ones = (1,) * (3 - len(kernel))
    counts = [ceil(n / p) for n, p in zip((*ones, *out), halo.patch(_BLOCK), strict=True)]
    tiles = ceil(number_at(windows.batch, sizes) * prod(counts) / patches)
    tiles *= ceil(number_at(windows.filters) / columns)
    wave = _MULTIPROCESSORS * _AT_ONCE[columns]
    intervals = ceil(number_at(windows.channels) / width) * width / INTERVAL
    tile_us = intervals * prod(kernel) * _TAP_US[columns]
    in_runs = not channels_first or out[-1] % 4 == 0
    tile_us += _HALO_END_US[channels_first][columns] if in_runs else _ONE_BY_ONE_US
    if buffers == 1 and _AT_ONCE[columns] == 1:
        tile_us += ceil(number_at(windows.channels) / width) * _SINGLE_US
    return ByHalos(columns, width, halo, tiles, ceil(tiles / wave) * wave * tile_us)


def _rows(made: Convolution, halo: Halo) -> int | None:
    """Rows of shared memory of a patch's halo, if it can be copied: lines in parts, of the others
    one box.
    """
    reach = [
        (number_at(n) - 1) * step
        for n, step in zip(made.windows.kernel, made.dilation, strict=True)
    ]
    reach = [0] * (3 - len(reach)) + reach
    box = [n + r for n, r in zip(halo.patch(_BLOCK), reach, strict=True)]
    copies = ceil(box[2] / _MOST_BOX)
    if max(box[:2]) > _MOST_BOX or (copies > 1 and prod(box[:2]) > 1):
        return None
    return ceil(prod(box) / copies / 8) * 8 * copies
