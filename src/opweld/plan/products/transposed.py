"""Transposed convolutions: their operators, and which of them the kernel's phases take."""

from __future__ import annotations

from itertools import product
from math import prod

from ...ir.kernels.convolution import FAR, MOST_PHASES, MOST_TAPS, Convolution, Phase
from ...ir.plan import Sizes, number_at
from .recognised import NoProduct

TRANSPOSED = {
    "aten.conv_transpose1d.default": 1,
    "aten.conv_transpose2d.input": 2,
    "aten.conv_transpose3d.input": 3,
}
"""The operators, and along how many axes of space."""
PLACES = {"stride": 3, "padding": 4, "groups": 6, "dilation": 7}
"""Of their arguments; the padding of the result shows in its sizes."""


def require_phases(made: Convolution) -> None:
    """That each phase is a convolution that the kernel takes. Raises NoProduct."""
    if prod(made.stride) > MOST_PHASES:
        raise NoProduct(f"its strides have more than {MOST_PHASES} phases")
    if prod(max(phase.taps for phase in along) for along in made.windows.phases) > MOST_TAPS:
        raise NoProduct(f"its phases have more than {MOST_TAPS} positions of its kernel")
    far = FAR[len(made.out)]
    for axis, along in enumerate(made.windows.phases):
        beyond = made.out[axis] - made.windows.space[axis] * made.stride[axis]
        for phase in along:
            last = _last(phase, beyond, made.stride[axis]) if isinstance(beyond, int) else 0
            if phase.taps and not (_is_near(phase, far) and -far <= last < far):
                raise NoProduct("its windows reach farther than the copy engine")


def _is_near(phase: Phase, far: int) -> bool:
    """Whether the first window begins where the copy engine can, and reaches no farther than its
    offsets.
    """
    return (phase.taps - 1) * phase.dilation < far and -far < phase.padding <= far


def _last(phase: Phase, beyond: int, stride: int) -> int:
    """From the last pixel to where the last window begins: the result has `beyond` more pixels than
    strides times those of the input.
    """
    return -((phase.first - beyond) // stride) - phase.padding


def products_of_phases(made: Convolution, sizes: Sizes) -> list[tuple[int, int]]:
    """The output pixels and the taps of each phase that has both, at examples of symbolic sizes."""
    batch = number_at(made.windows.batch, sizes)
    out = [number_at(size, sizes) for size in made.out]
    pixels = (
        [max(-((phase.first - size) // stride), 0) for phase in along]
        for size, stride, along in zip(out, made.stride, made.windows.phases, strict=True)
    )
    taps = ([phase.taps for phase in along] for along in made.windows.phases)
    pairs = zip(product(*pixels), product(*taps), strict=True)
    return [(batch * prod(seen), prod(each)) for seen, each in pairs if prod(seen) * prod(each)]
