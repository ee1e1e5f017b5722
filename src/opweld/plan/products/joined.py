"""Convolutions of few channels: of how many rows the taps across are joined with the channels."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from ...ir.expr import product as product_of
from ...ir.kernels.convolution import INTERVAL, Convolution, has_mask
from ...ir.plan import number_at

# What packing 64 joined channels of an output pixel costs, beside multiplying them with 64 filters:
# 128 bytes are written and read (at 3 TB/s), 128 pixels times 64 terms take 0.83 us, two tiles on
# a multiprocessor (H100).
_OF_PACKING = 3.5
# Of a convolution that could be made tap by tap, joining taps makes a larger input.
_LEAST_GAIN = 0.8
# Fewer channels leave most of an interval empty where they are not joined with taps.
LEAST_CHANNELS = 32


@dataclass(frozen=True, slots=True)
class Joined:
    """Taps of `rows` rows together: how many intervals of 64 values a sum has, and those of an
    output pixel that are packed; whether a mask has the taps that are left below each other and
    behind. The last of those below each other begins `max_offset` packed rows below the first.
    """

    rows: int
    intervals: int
    packed: int
    has_mask: bool
    max_offset: int

    @property
    def cost(self) -> float:
        """In products of an interval."""
        return self.intervals + _OF_PACKING * self.packed


def joined(made: Convolution) -> Joined:
    """The cheapest number of rows: whole steps of the stride, so that packed rows are shared."""
    *_, down, across = (1, *map(number_at, made.windows.kernel))
    *_, stride, _ = (1, *made.stride)
    *_, dilation, _ = (1, *made.dilation)
    step = stride // gcd(stride, dilation)
    depth = number_at(product_of(made.windows.kernel)) // (down * across)
    line = number_at(made.windows.channels) * across

    def of(rows: int) -> Joined:
        below, packed = -(-down // rows), -(-rows * line // INTERVAL)
        max_offset = (below - 1) * rows * dilation // stride
        return Joined(rows, depth * below * packed, packed, has_mask(depth, below, 1), max_offset)

    return min(map(of, range(step, down + step, step)), key=lambda found: found.cost)


def is_joined(made: Convolution) -> bool:
    """Whether taps are joined: of too few channels always, of more where it is much less work."""
    if made.depthwise or made.transposed:
        return False
    channels = number_at(made.windows.channels)
    found, chunks = joined(made), -(-channels // INTERVAL)
    if channels < LEAST_CHANNELS or not found.has_mask:
        return found.has_mask
    tap_by_tap = number_at(product_of(made.windows.kernel)) * chunks + _OF_PACKING * chunks
    return found.cost < _LEAST_GAIN * tap_by_tap
