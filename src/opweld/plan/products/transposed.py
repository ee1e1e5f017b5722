"""Transposed convolutions: the arguments of their operators, and which the kernel takes."""

from __future__ import annotations

from itertools import product
from math import prod

from ...ir.kernels.convolution import FAR, MOST_ALONG_AXES, MOST_PHASES, Convolution, has_mask
from ...ir.plan import Sizes, number_at
from .recognised import NoProduct

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


def products_of_phases(made: Convolution, sizes: Sizes) -> list[tuple[int, int]]:
    """The output pixels and the taps of each phase, at examples of symbolic sizes."""
    batch = number_at(made.windows.batch, sizes)
    out = [number_at(size, sizes) for size in made.out]
    pixels = (
        [max(-((phase.first - size) // stride), 0) for phase in along]
        for size, stride, along in zip(out, made.stride, made.windows.phases, strict=True)
    )
    taps = ([phase.taps for phase in along] for along in made.windows.phases)
    pairs = zip(product(*pixels), product(*taps), strict=True)
    return [(batch * prod(seen), prod(each)) for seen, each in pairs]
