"""What is broken in a copy of the kernels of convolutions shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.emulation.convolutions import (
    CHAIN,
    NARROW,
    Case,
    Form,
    Windows,
    convolve,
    require_as_exact,
    require_faithful,
    require_of_float32,
    text,
    windows,
)
from tests.emulation.emulate import EmulationFault

LANES = (1,)  # compiled in half of the time
Check = Callable[[Form, str], None]


def of_many_scales(form: Form, source: str) -> None:
    """Each pixel has others, in each interval of channels."""
    how = Windows((2, 1), (2, 1), (2, 2), (1, 2))
    x, weight = Case(2, 70, (9, 22), 36, (3, 2), how).operands
    scale = np.exp2(np.random.default_rng(4).integers(-12, 12, (2, 2, 9, 22)))
    x[:, :64] *= scale[:, :1].astype(np.float32)
    x[:, 64:] *= scale[:, 1:].astype(np.float32)
    found, makers = convolve(x, weight, how, form=form, source=source, lanes=1)
    require = require_faithful if form == CHAIN else require_as_exact
    require(found, x, weight, how)
    assert makers == 1


def that_are_not_finite(form: Form, source: str) -> None:
    """The tensor cores hand nothing over."""
    how = windows(2)
    x, weight = Case(1, 40, (6, 6), 4, (2, 2), how).operands
    x[0, 0, 4, 4] = np.inf
    found, makers = convolve(x, weight, how, form=form, source=source, lanes=1)
    require_of_float32(found, x, weight, how)
    assert makers == 1


def huge_at_the_edge(form: Form, source: str) -> None:
    """What is huge at the end of each row counts where it is seen, not where the next row begins:
    there it would seem to drown all sums.
    """
    how = Windows((1, 1), (0, 1), (1, 1))
    x, weight = Case(1, 40, (20, 4), 36, (1, 3), how).operands
    x[:, 3, :, 3] = 2.0**30
    found, makers = convolve(x, weight, how, form=form, source=source, lanes=1)
    require_as_exact(found, x, weight, how)
    assert makers == 1


# What may be broken.
FAULTS = {
    "the place of a tap": (
        "taps.at[2] * c.dilation[2] + taps_of.shift(tile, 2)};",
        "taps.at[2] * c.dilation[2] + 1};",
    ),
    "taps that are dilated": (
        "taps.at[1] * c.dilation[1] + taps_of",
        "taps.at[1] + taps_of",
    ),
    "the lower corner": ("lower[i] = -c.padding[axis];", "lower[i] = 1 - c.padding[axis];"),
    "the upper corner": ("+ 1 - c.size[axis];\n    }", "+ 2 - c.size[axis];\n    }"),
    "steps": ("steps[i + 1] = cuuint32_t(c.stride[axis]);", "steps[i + 1] = 1;"),
    "the first window of a tile": (
        "* c.stride[axis] - c.padding[axis];",
        "- c.padding[axis];",
    ),
    "taps that are not shown": ("shown >> tap & 1", "shown >> (tap + 1) & 1"),
    "the scales of a tap": (
        "at[0] * c.dilation[0] * c.size[1] + at[1] * c.dilation[1]",
        "at[0] * c.dilation[0] * c.size[1] + at[1]",
    ),
    "the scales of an interval": ("of_tap + taps.interval * int(c.pixels());", "of_tap;"),
    "the scales of an image": (
        "corner.image * of_channels * int(c.pixels())",
        "corner.image * int(c.pixels())",
    ),
    "where a tap ends": (
        "if (part == kChunks - 1) taps.advance(kernel);",
        "if (part == kChunks) taps.advance(kernel);",
    ),
    "filters with channels before taps": (
        "from[(channel + i) * taps + tap]",
        "from[channel + i + tap * channels]",
    ),
    "rows of tiles": (
        "tile.row * T::kBlocks + blocks.rank) * T::kTileM);",
        "tile.row + blocks.rank) * 64);",
    ),
}
FAST = (
    "the place of a tap",
    "the upper corner",
    "taps that are not shown",
    "the scales of an interval",
)
FAULTS_ELSEWHERE: dict[str, tuple[Check, Form, str, str]] = {
    "a result of what does not fit": (
        that_are_not_finite,
        NARROW,
        "const bool fits = !scales.call || scales.call->needs_fallback == 0;",
        "const bool fits = true;",
    ),
    "scales of what is not shown": (huge_at_the_edge, NARROW, "shown >> tap & 1 ?", "true ?"),
    "the edge of an image in float32": (
        of_many_scales,
        CHAIN,
        "place < 0 || place >= c.size[axis]",
        "place < 0 || place > c.size[axis]",
    ),
    "taps in float32": (of_many_scales, CHAIN, "step *= c.size[axis]", "step *= c.out[axis]"),
}


def require_seen(check: Check, form: Form, sound: str, broken: str) -> None:
    """The check takes the kernel as it is, and not the broken one."""
    source = text(form, lanes=LANES)
    assert sound in source, "the kernel says it otherwise"
    check(form, source)
    with pytest.raises((AssertionError, EmulationFault)):
        check(form, text(form, lanes=LANES).replace(sound, broken))


@pytest.mark.parametrize(
    "fault", [f if f in FAST else pytest.param(f, marks=pytest.mark.slow) for f in FAULTS]
)
def test_a_fault_in_windows_shows(fault: str) -> None:
    require_seen(of_many_scales, NARROW, *FAULTS[fault])


@pytest.mark.parametrize("fault", FAULTS_ELSEWHERE)
def test_a_fault_elsewhere_shows(fault: str) -> None:
    require_seen(*FAULTS_ELSEWHERE[fault])
