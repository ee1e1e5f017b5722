"""Convolutions of one tap, whose pixels are multiplied as they lie: nothing of them is packed."""

from __future__ import annotations

from ...ir.expr import product as product_of
from ...ir.kernels.convolution import Convolution
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
