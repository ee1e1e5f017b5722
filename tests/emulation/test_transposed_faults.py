"""What is broken in a copy of the kernels of transposed convolutions shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.emulation.convolutions import NARROW
from tests.emulation.emulate import EmulationFault
from tests.emulation.transposed_convolutions import (
    Case,
    case,
    convolve,
    require_as_exact,
    require_of_float32,
    text,
)

LANES = (1,)  # compiled in half of the time
Check = Callable[[str], None]


def with_uneven_axes(source: str) -> None:
    """Phases of one tap and of two; of some windows begin inside of the image."""
    how = Case(2, 70, (4, 5), 36, (3, 4), (2, 3), (1, 4), (0, 2), (1, 2))
    x, weight = how.operands
    found = convolve(x, weight, how, source=source, lanes=1)
    require_as_exact(found, x, weight, how)


def with_one_tap(source: str) -> None:
    """Three of four phases have none."""
    how = case((4, 5), (1, 1), 2, 0, 1)
    x, weight = how.operands
    x[0, 3, 1, 1] = np.nan
    found = convolve(x, weight, how, source=source, lanes=1)
    np.testing.assert_array_equal(np.isnan(found).any(-1), how.reached(np.isnan(x[:, 3])))


def of_filters_that_differ(source: str) -> None:
    """By powers of two, and from phase to phase."""
    how = case((4, 5), (4, 4), 2, 1)
    x, weight = how.operands
    weight *= np.exp2(np.arange(36, dtype=np.float32) % 7 - 3)[None, :, None, None]
    weight[..., ::2] *= 2.0**10
    found = convolve(x, weight, how, source=source, lanes=1)
    require_as_exact(found, x, weight, how)


def of_a_weight_that_does_not_fit(source: str) -> None:
    """Only the taps of the last phase know of it."""
    how = case((4, 4), (2, 2), 2)
    x, weight = how.operands
    weight[:, 3, 1, 1] = 1e-42
    found = convolve(x, weight, how, source=source, lanes=1)
    require_of_float32(found, x, weight, how)


def in_parts(source: str) -> None:
    how = case((3, 3), (6, 5), 2, 2, channels=130)
    x, weight = how.operands
    found = convolve(x, weight, how, source=source, lanes=1, multiprocessors=132)
    require_as_exact(found, x, weight, how)


# What may be broken.
FAULTS: dict[str, tuple[Check, str, str]] = {
    "a phase at the place of another": (
        with_uneven_axes,
        "phase.at[axis] * step * kBytes[i];",
        "(stride[own] - 1 - phase.at[axis]) * step * kBytes[i];",
    ),
    "where the epilogue begins": (
        with_uneven_axes,
        "phase.at[axis] * step * kBytes[i];",
        "0 * step * kBytes[i];",
    ),
    "the steps of the epilogue": (with_uneven_axes, "step *= stride[own];", "step *= 1;"),
    "the order of taps": (
        with_uneven_axes,
        "(own.count[axis] - 1 - place) * weight.step[axis]",
        "place * weight.step[axis]",
    ),
    "the first tap": (
        with_uneven_axes,
        "const int tap = own.first[axis] +",
        "const int tap = (own.first[axis] + 1) % 2 +",
    ),
    "the steps of taps": (
        with_uneven_axes,
        "(own.count[axis] - 1 - place) * weight.step[axis]",
        "(own.count[axis] - 1 - place)",
    ),
    "where windows begin": (
        with_uneven_axes,
        "(last * d - r - p) / s",
        "(last * d - p) / s",
    ),
    "steps from tap to tap": (
        with_uneven_axes,
        "c.dilation[axis] = d / g;",
        "c.dilation[axis] = 1;",
    ),
    "the pixels of a phase": (
        with_uneven_axes,
        "(pixels - r + s - 1) / s",
        "(pixels - r + s - 2) / s",
    ),
    "a phase without taps": (
        with_one_tap,
        "if (!takes || c.taps() == 0) {",
        "if (!takes) {",
    ),
    "the filters of a phase": (
        with_uneven_axes,
        "packed + before * filters * row",
        "packed",
    ),
    "the scales of a phase": (of_filters_that_differ, "scale + phase * filters", "scale"),
    "what is known of a phase": (
        of_a_weight_that_does_not_fit,
        "Form::pack_pixels(call.c, pixels, filters, all, stream)",
        "Form::pack_pixels(call.c, pixels, filters, all / call.num, stream)",
    ),
    "float32 filters of a phase": (
        of_a_weight_that_does_not_fit,
        "call.arranged + call.phases[n].before * c.channels * c.filters",
        "call.arranged",
    ),
    "memory of parts": (in_parts, "space.take<float>(most)", "space.take<float>(most / 4)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_shows(fault: str) -> None:
    """The check takes the kernel as it is, and not the broken one."""
    check, sound, broken = FAULTS[fault]
    source = text(NARROW, lanes=LANES)
    assert sound in source, "the kernel says it otherwise"
    check(source)
    with pytest.raises((AssertionError, EmulationFault)):
        check(source.replace(sound, broken))
