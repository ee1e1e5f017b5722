"""Convolutions of each channel by itself: where their channels are, and how long they take."""

from __future__ import annotations

from ...ir.expr import product as product_of
from ...ir.graph import Node
from ...ir.kernels.convolution import Convolution
from ...ir.plan import Sizes, number_at
from ...target import Target


def lies_in_planes(call: Node, made: Convolution) -> bool:
    """Whether a convolution of each channel by itself has the channels of its input in memory, and
    those of its result, before their space.
    """
    space = tuple(range(2, call.type.rank))
    return made.depthwise and not call.attrs.channels_last and made.axes[1:-1] == space


def lanes_of_depthwise(made: Convolution) -> int:
    """How many neighbours its epilogue takes at once: as many as divide the channels, which are
    last, or the last axis of a result in planes, as far as it is known.
    """
    if not made.in_planes:
        return 2 if number_at(made.windows.filters) % 2 == 0 else 1
    width = made.out[-1]
    return next(n for n in (4, 2, 1) if not isinstance(width, int) or width % n == 0)


# Of the speed of a copy, where each channel is convolved by itself (H100, 2026-11-26): ours, and
# the library's with channels last, of few taps and of more. 3x3 taps of 96 channels, 112x112, batch
# 32: 0.108 and 0.124 ms, a copy 0.106; 7x7, 56x56: 0.048 and 0.184, a copy 0.030.
_FEW_TAPS = 9
_OURS_SHARES, _LIBRARY_SHARES = (0.95, 0.6), (0.85, 0.2)
# Of planes: ours 0.106 and 0.058 ms, the library's 0.364 and 0.320, copies 0.072 and 0.018 (H200,
# whole calls); of stride 2, 192 channels, 56x56, the library's took 0.062, a copy 0.036 (H100).
_OURS_SHARES_OF_PLANES, _LIBRARY_SHARES_OF_PLANES = (0.68, 0.31), (0.3, 0.1)
_DEPTHWISE_US = 3.0


def estimate_depthwise(
    call: Node, made: Convolution, tailed: bool, target: Target, sizes: Sizes
) -> tuple[float, float]:
    """Microseconds of ours and of the library's, with a kernel for the tail where there is one."""
    moved_us, written_us = (
        sum(number_at(node.type.size_bytes, sizes) for node in nodes)
        / target.copy_bytes_per_s
        * 1e6
        for nodes in ((made.x, call), (call,))
    )
    many = number_at(product_of(made.windows.kernel)) > _FEW_TAPS
    shares = _OURS_SHARES, _LIBRARY_SHARES
    if made.in_planes:
        shares = _OURS_SHARES_OF_PLANES, _LIBRARY_SHARES_OF_PLANES
    ours, library = (_DEPTHWISE_US + moved_us / each[many] for each in shares)
    return ours, library + (2 * written_us + 2.0 if tailed else 0.0)
