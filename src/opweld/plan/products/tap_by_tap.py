"""Which convolutions the copy engine and the masks of the kernel take, tap by tap."""

from __future__ import annotations

from itertools import islice

from ...ir.kernels.convolution import (
    FAR,
    MOST_ALONG_AXES,
    MOST_STRIDE,
    Convolution,
    has_mask,
)
from ...ir.plan import number_at

OUT_OF_RANGE = "its windows or strides are out of the copy engine's range"


def why_not_taps(made: Convolution) -> str | None:
    """Why the kernel does not take a convolution tap by tap, whose weight has a fixed size."""
    if not has_mask(*map(number_at, made.windows.kernel)):
        return f"its kernel has more than {MOST_ALONG_AXES} positions along its axes"
    if not is_near(made) or max(made.stride) > MOST_STRIDE:
        return OUT_OF_RANGE
    return None


def is_near(made: Convolution, axes: int = 3) -> bool:
    """Whether the first and the last window begin where the copy engine can, and its offsets are
    large enough, along the first `axes` of space.
    """
    far = FAR[len(made.out)]
    numbers = zip(made.windows.kernel, made.stride, made.padding, made.dilation, strict=True)
    for taps, stride, padding, dilation in islice(numbers, axes):
        max_offset = (number_at(taps) - 1) * dilation
        # From the last pixel to where the last window begins; strides may leave pixels out.
        last = padding - max_offset
        if max_offset >= far or padding > far or last >= far or last - (stride - 1) < -far:
            return False
    return True
