"""Convolutions of few channels: how many channels an interval has, of how many rows the taps across
are joined with the channels, and how many groups are one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import gcd

from ...ir.expr import product as product_of
from ...ir.kernels.convolution import COLUMNS, INTERVAL, WIDTHS, Convolution, has_mask
from ...ir.kernels.product import PARTS, Mode
from ...ir.plan import ConvolutionSchedule, number_at
from .tap_by_tap import why_not_taps

# What packing 64 joined channels of an output pixel costs, beside multiplying them with 64 filters:
# 128 bytes are written and read (at 3 TB/s), 128 pixels times 64 terms take 0.83 us, two tiles on
# a multiprocessor (H100). With 16 channels of 3x3 taps it took 3.1 products of an interval
# (512x512; H200); an input that is packed as it lies should take a quarter of that, not measured.
_OF_JOINING, _OF_PACKING = 3.5, 0.8
# Of a convolution that could be made tap by tap, joining taps makes a larger input.
_LEAST_GAIN = 0.8
# Fewer channels leave most of an interval of 64 empty where they are not joined with taps.
LEAST_CHANNELS = 32


# Microseconds of 64 channels at one tap in a tile of so many columns, with two tiles on a
# multiprocessor or one, and of a tile's end (H200, 2026-11-28, from 20 convolutions); products of
# upper and lower parts, of which the least is left out.
_INTERVAL_US, _END_US, TILES_AT_ONCE = {64: 0.70, 128: 0.46}, {64: 3.5, 128: 5.0}, {64: 2, 128: 1}
_PRODUCTS = {1: 1, 2: 3}


def tile_us(mode: Mode, columns: int, width: int, intervals: float) -> float:
    """Microseconds of a multiprocessor for a tile of 128 output pixels and so many columns, whose
    sums have so many intervals of `width` channels.
    """
    of_interval = _INTERVAL_US[columns] * interval_cost(width) * _PRODUCTS[PARTS[mode]]
    return (intervals * of_interval + _END_US[columns]) / TILES_AT_ONCE[columns]


def interval_cost(width: int) -> float:
    """Of the products of an interval of so many channels, beside one of 64: 0.68 to 0.78 for 32
    (five convolutions), 0.78 for 16 (one; H200). What their tiles bring falls with the width;
    barriers, scales and promotions do not.
    """
    return 0.55 + 0.45 * width / INTERVAL


def width_of(channels: int, mode: Mode) -> int:
    """The channels of an interval: the fewest that hold all, else 64, as where values have two
    parts.
    """
    return next((each for each in _widths(mode) if channels <= each), INTERVAL)


def _widths(mode: Mode) -> tuple[int, ...]:
    return WIDTHS if PARTS[mode] == 1 else (INTERVAL,)


@dataclass(frozen=True, slots=True)
class Joined:
    """Taps of `rows` rows together: how many intervals of `width` values a sum has, and those of an
    output pixel that are packed; whether a mask has the taps that are left below each other and
    behind. The last of those below each other begins `max_offset` packed rows below the first.
    """

    rows: int
    width: int
    intervals: int
    packed: int
    has_mask: bool
    max_offset: int

    @property
    def cost(self) -> float:
        """In products of an interval of 64 values."""
        packed = self.packed * self.width / INTERVAL
        return self.intervals * interval_cost(self.width) + _OF_JOINING * packed


def joined(made: Convolution, mode: Mode) -> Joined:
    """The cheapest number of rows and width: whole steps of the stride, so that packed rows are
    shared.
    """
    *_, down, across = (1, *map(number_at, made.windows.kernel))
    *_, stride, _ = (1, *made.stride)
    *_, dilation, _ = (1, *made.dilation)
    step = stride // gcd(stride, dilation)
    depth = number_at(product_of(made.windows.kernel)) // (down * across)
    line = number_at(made.windows.channels) * across

    def of(rows: int, width: int) -> Joined:
        below, packed = -(-down // rows), -(-rows * line // width)
        max_offset = (below - 1) * rows * dilation // stride
        mask = has_mask(depth, below, 1)
        return Joined(rows, width, depth * below * packed, packed, mask, max_offset)

    pairs = product(range(step, down + step, step), _widths(mode))
    return min((of(*pair) for pair in pairs), key=lambda found: found.cost)


def joining(made: Convolution, mode: Mode) -> Joined | None:
    """How taps are joined, where they are: where it is much less work, and of few channels where
    the kernel does not take them tap by tap, or would leave most of an interval empty.
    """
    if made.depthwise or made.transposed or made.groups > 1:
        return None
    channels, found = number_at(made.windows.channels), joined(made, mode)
    if not found.has_mask:
        return None
    if channels < LEAST_CHANNELS and (PARTS[mode] > 1 or why_not_taps(made)):
        return found
    return found if found.cost < _LEAST_GAIN * _cost_of_taps(made, mode) else None


def _cost_of_taps(made: Convolution, mode: Mode) -> float:
    """Tap by tap, as Joined.cost: strides leave fewer output pixels than are packed."""
    channels, taps = number_at(made.windows.channels), number_at(product_of(made.windows.kernel))
    width = width_of(channels, mode)
    intervals = -(-channels // width)
    *_, down, across = (1, *made.stride)
    packed = intervals * width / INTERVAL * down * across
    return taps * intervals * interval_cost(width) + _OF_PACKING * packed


# --- groups ---


@dataclass(frozen=True, slots=True)
class JoinedGroups:
    """So many neighbouring groups as one product, whose channels are whole intervals of `width` and
    whose filters whole tiles of `columns`, or all groups: how many `intervals` a tap has, and
    microseconds of a multiprocessor for 128 output pixels.
    """

    groups: int
    columns: int
    width: int
    intervals: int
    us: float

    def schedule(self, mode: Mode, lanes: int) -> ConvolutionSchedule:
        """Of an epilogue that takes so many neighbours at once."""
        return ConvolutionSchedule(
            mode, self.columns, lanes, width=self.width, joined_groups=self.groups
        )


def joined_groups(made: Convolution, mode: Mode) -> JoinedGroups:
    """The fastest way to join the groups of a convolution. Zeros stand where a filter does not see
    a channel: more groups at once are fewer tiles, and more that is multiplied by zeros.
    """
    windows = made.windows
    filters, taps = number_at(windows.filters), number_at(product_of(windows.kernel))

    def of(groups: int, columns: int, width: int) -> JoinedGroups | None:
        channels = number_at(windows.seen) * groups
        of_product = filters // made.groups * groups
        if groups < made.groups and (channels % width or of_product % columns):
            return None
        intervals = -(-channels // width)
        tiles = made.groups // groups * -(-of_product // columns)
        us = tiles * tile_us(mode, columns, width, taps * intervals)
        return JoinedGroups(groups, columns, width, intervals, us)

    divisors = (n for n in range(1, made.groups + 1) if made.groups % n == 0)
    found = (of(*each) for each in product(divisors, COLUMNS, _widths(mode)))
    return min((each for each in found if each), key=lambda each: each.us)
