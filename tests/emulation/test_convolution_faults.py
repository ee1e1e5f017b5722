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
    require_float32_where,
    require_of_11_bits,
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


def of_a_pixel_that_does_not_fit(form: Form, source: str) -> None:
    """Sums of it are summed in float32."""
    how = windows(2)
    x, weight = Case(1, 40, (6, 6), 4, (2, 2), how).operands
    odd = np.zeros(x.shape, bool)
    odd[0, 0, 4, 4] = True
    x[odd] *= 2.0**100
    found, makers = convolve(x, weight, how, form=form, source=source, lanes=1)
    require_float32_where(odd, np.zeros(weight.shape), found, how, x, weight)
    assert makers == 1


def of_a_filter_that_does_not_fit(form: Form, source: str) -> None:
    """All sums are summed in float32."""
    how = Windows((2, 1), (2, 1), (2, 2), (1, 2))
    x, weight = Case(2, 70, (9, 22), 36, (3, 2), how).operands
    odd = np.zeros(weight.shape, bool)
    odd[5] = True
    weight[odd] *= 2.0**-115
    found, makers = convolve(x, weight, how, form=form, source=source, lanes=1)
    require_float32_where(np.zeros(x.shape), odd, found, how, x, weight)
    assert makers == 1


def huge_at_the_edge(form: Form, source: str) -> None:
    """What is huge at the end of each row counts where it is seen, not where the next row begins:
    there it would seem to drown all sums.
    """
    how = Windows((1, 1), (0, 1), (1, 1))
    x, weight = Case(1, 40, (20, 4), 36, (1, 3), how).operands
    x[:, 3, :, 3] = 2.0**30
    found, makers = convolve(x, weight, how, form=form, source=source, lanes=1)
    require_of_11_bits(found, x, weight, how)
    assert makers == 1


# What may be broken.
FAULTS = {
    "the place of a tap": (
        "taps.at[2] * c.dilation[2] + taps_of.shift(tile.batch, 2)};",
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
    "taps that are not shown": (
        "(first_bit(kernel, axis) + at[axis])",
        "(first_bit(kernel, axis) + at[axis] + 1)",
    ),
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
        "return channel * c.taps() + tap;",
        "return channel + tap * c.channels;",
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
        of_a_pixel_that_does_not_fit,
        NARROW,
        "__any_sync(~0u, all & kDoesNotFit)",
        "false",
    ),
    "marks of pixels": (
        of_a_pixel_that_does_not_fit,
        NARROW,
        "marks |= __float_as_uint(of_upper) | __float_as_uint(of_lower);",
        "",
    ),
    "marks of filters": (
        of_a_filter_that_does_not_fit,
        NARROW,
        "filters.scale[number] = packed_scale(largest, up, excess > 0);",
        "filters.scale[number] = unmarked(packed_scale(largest, up, excess > 0));",
    ),
    "scales of sums that are summed in float32": (
        of_a_filter_that_does_not_fit,
        NARROW,
        "fallback ? 1.0f",
        "fallback ? 2.0f",
    ),
    "pixels that are read in float32": (
        of_a_filter_that_does_not_fit,
        NARROW,
        "pixel = pixel * c.size[axis] + at[axis];",
        "pixel = pixel * c.out[axis] + at[axis];",
    ),
    "the edge of an image that is read in float32": (
        of_a_filter_that_does_not_fit,
        NARROW,
        "unsigned(at[axis]) >= unsigned(c.size[axis])",
        "unsigned(at[axis]) > unsigned(c.size[axis])",
    ),
    "taps of sums that are summed in float32": (
        of_a_filter_that_does_not_fit,
        NARROW,
        "taps.advance(taps_of.kernel(c, batch));",
        "",
    ),
    "columns of sums that are summed in float32": (
        of_a_filter_that_does_not_fit,
        NARROW,
        "weight += step)",
        "weight += step / 2)",
    ),
    "rows of sums that are summed in float32": (
        of_a_filter_that_does_not_fit,
        NARROW,
        "/ 8 * 4 + 2 * row + i % 2] +=",
        "/ 8 * 4 + 2 - 2 * row + i % 2] +=",
    ),
    "scales of what is not shown": (
        huge_at_the_edge,
        NARROW,
        "(shown & position) == position;",
        "true;",
    ),
    "the edge of an image in float32": (
        of_many_scales,
        CHAIN,
        "unsigned(at[axis]) >= unsigned(c.size[axis])",
        "unsigned(at[axis]) > unsigned(c.size[axis])",
    ),
    "taps in float32": (
        of_many_scales,
        CHAIN,
        "tap = next;\n    }\n    return value_at",
        "}\n    return value_at",
    ),
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
