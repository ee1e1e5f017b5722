"""Transposed convolutions: the arguments of their operators, and which the kernel takes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

from ...ir.kernels.convolution import (
    FAR,
    MOST_ALONG_AXES,
    MOST_PHASES,
    PHASE_COLUMNS,
    Convolution,
    Phase,
    has_mask,
)
from ...ir.plan import Sizes, number_at
from .recognised import NoProduct

# Bytes a second of a multiprocessor where each phase writes every other element of a line, or
# fewer, beside neighbours of the same line: 12e9 to 38e9 (five cases on an H200, strides 2 and 3).
_WRITTEN_APART = 20e9
_ROWS = 128  # of a tile

TRANSPOSED_PLACES = {"stride": 3, "padding": 4, "output_padding": 5, "groups": 6, "dilation": 7}
"""Of their arguments."""


def require_phases(made: Convolution) -> None:
    """That the kernel takes all phases. Raises NoProduct."""
    if prod(made.stride) > MOST_PHASES:
        raise NoProduct(f"its strides have more than {MOST_PHASES} phases")
    if not has_mask(*(max(phase.taps for phase in along) for along in made.windows.phases)):
        most = f"more than {MOST_ALONG_AXES} positions of its kernel along their axes"
        raise NoProduct(f"its phases have {most}")
    if not all(_is_near(made, axis) for axis in range(len(made.out))):
        raise NoProduct("its windows are out of the copy engine's range")


def _is_near(made: Convolution, axis: int) -> bool:
    """Whether the first and the last window of the phases begin where the copy engine can, and
    its offsets, which are from the first window of any phase, are large enough.
    """
    far, stride = FAR[len(made.out)], made.stride[axis]
    phases = [phase for phase in made.windows.phases[axis] if phase.taps]
    first = max(phase.padding for phase in phases)
    max_offset = max(first - phase.padding + (phase.taps - 1) * phase.dilation for phase in phases)
    # From the last pixel to where the last window begins.
    beyond = made.out[axis] - made.windows.space[axis] * stride
    last = -(-beyond // stride) - first if isinstance(beyond, int) else 0
    return max_offset < far and -far < first <= far and -far <= last < far


def phase_columns(
    made: Convolution, across: bool, tiles: Callable[[int, float], tuple[float, int]]
) -> int:
    """How many columns a filter has: 1, or one for each phase along the last axis. `across`:
    neighbours in memory are those of this axis, and every phase would write elements apart.
    `tiles` gives microseconds of those of so many filters and positions of the kernel first.
    """
    count = next((count for count in PHASE_COLUMNS if made.stride[-1] <= count), 0)
    *outer, last = made.windows.phases
    if not count or made.stride[-1] == 1 or made.stride[-1] % made.dilation[-1] != 0:
        return 1
    if not has_mask(*(max(phase.taps for phase in along) for along in outer), joined_taps(last)):
        return 1
    filters = number_at(made.windows.filters)
    of_outer = prod(sum(phase.taps for phase in along) / len(along) for along in outer)
    apart = sum(tiles(filters, of_outer * phase.taps)[0] for phase in last)
    if across:
        bytes_ = 4 * _ROWS * filters * len(last) * (len(last) - 1)
        apart += bytes_ / _WRITTEN_APART * 1e6
    together, _ = tiles(count * filters, of_outer * joined_taps(last))
    return count if together < apart else 1


def joined_taps(along: tuple[Phase, ...]) -> int:
    """How many positions, next to each other, the phases along an axis see together."""
    phases = [phase for phase in along if phase.taps]
    first = max(phase.padding for phase in phases)
    return max(first - phase.padding + phase.taps for phase in phases)


def products_of_phases(made: Convolution, columns: int, sizes: Sizes) -> list[tuple[int, int]]:
    """The output pixels and the taps of each phase, at examples of symbolic sizes; where phases are
    `columns` of a filter, those along the last axis are one.
    """
    batch = number_at(made.windows.batch, sizes)
    out = [number_at(size, sizes) for size in made.out]
    pixels = [
        [max(-((phase.first - size) // stride), 0) for phase in along]
        for size, stride, along in zip(out, made.stride, made.windows.phases, strict=True)
    ]
    taps = [[phase.taps for phase in along] for along in made.windows.phases]
    if columns > 1:
        pixels[-1], taps[-1] = [pixels[-1][0]], [joined_taps(made.windows.phases[-1])]
    pairs = zip(product(*pixels), product(*taps), strict=True)
    return [(batch * prod(seen), prod(each)) for seen, each in pairs]
