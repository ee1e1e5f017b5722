"""What is broken in a copy of the kernels of transposed convolutions shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.emulation import distributions
from tests.emulation.convolution_models import quick_first
from tests.emulation.convolutions import NARROW
from tests.emulation.emulate import EmulationFault
from tests.emulation.transposed_convolutions import (
    Case,
    case,
    convolve,
    flat,
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
    """Only the taps of the last phase know of it; those of another begin elsewhere."""
    how = case((4, 4), (4, 4), 2, 1)
    x, weight = how.operands
    odd = np.zeros(weight.shape, bool)
    odd[:, 3, ::2, ::2] = True
    weight[odd] = 1e-42
    found = convolve(x, weight, how, source=source, lanes=1)
    in_phase = np.zeros(found.shape, bool)
    in_phase[:, 1::2, 1::2, 3] = True
    a, b = how.matrices(x, weight)
    distributions.require_float32_where(in_phase.reshape(1, -1, 36), flat(found), a, b)


def beyond_a_limit(source: str) -> None:
    """The float32 kernel's: one phase has a tap less."""
    how = Case(1, 33, (1, 10), 4, (1, 129), (1, 2), (0, 60), (0, 0), (1, 1))
    x, weight = how.operands
    x[0, 3, 0, 1] = np.nan
    found = convolve(x, weight, how, source=source, lanes=1)
    np.testing.assert_array_equal(np.isnan(found).any(-1), how.reached(np.isnan(x[:, 3])))
    x[0, 3, 0, 1] = 1
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
        "+ begin[axis] + i * sign[axis];",
        "+ num[axis].by - 1 - begin[axis] - i * sign[axis];",
    ),
    "where the elements of a phase begin": (
        with_uneven_axes,
        "+ begin[axis] + i * sign[axis];",
        ";",
    ),
    "the steps of the epilogue": (with_uneven_axes, "q * stride[axis] +", "q +"),
    "elements that a phase has not": (
        with_uneven_axes,
        "else if (o >= size[axis]) count = 0;",
        "else if (o > size[axis]) count = 0;",
    ),
    "the order of taps": (
        with_uneven_axes,
        "(taps - 1 - i) * step[axis]",
        "i * step[axis]",
    ),
    "the first tap": (
        with_uneven_axes,
        "at += (begin +",
        "at += ((begin + 1) % 2 +",
    ),
    "the steps of taps": (
        with_uneven_axes,
        "(taps - 1 - i) * step[axis]",
        "(taps - 1 - i)",
    ),
    "where windows begin": (with_uneven_axes, "* d - r - p) / s;", "* d - p) / s;"),
    "where windows of a phase begin": (
        with_uneven_axes,
        "return taps.of[phase].shift[axis];",
        "return 0;",
    ),
    "steps from tap to tap": (
        with_uneven_axes,
        "c.dilation[axis] = d / g",
        "c.dilation[axis] = 1",
    ),
    "the pixels of phases": (
        with_uneven_axes,
        "c.out[axis] = int((pixels + s - 1) / s);",
        "c.out[axis] = int(pixels / s);",
    ),
    "taps that a phase has not": (
        with_uneven_axes,
        "const int intervals = loader.taps_of.taps.of[tile.batch].taps() * loader.of_channels;",
        "const int intervals = grid.intervals;",
    ),
    "taps that a phase has not, in float32": (
        beyond_a_limit,
        "if (k >= c.channels * taps) return 0.0f;",
        "",
    ),
    "the filters of a phase": (
        with_uneven_axes,
        "filters.packed + number * c.taps()",
        "filters.packed + number % c.filters * c.taps()",
    ),
    "the scales of a phase": (
        of_filters_that_differ,
        "batches > 1,",
        "0,",
    ),
    "what is known of a phase": (
        of_a_weight_that_does_not_fit,
        "packed_scale(largest, up, excess > 0);",
        "number < c.filters ? packed_scale(largest, up, excess > 0) : power_of_two(-up);",
    ),
    "windows of a phase in float32": (
        beyond_a_limit,
        "corner.at[axis] += own.shift[axis];",
        "corner.at[axis] += 0;",
    ),
    "windows of a phase that are summed in float32": (
        of_a_weight_that_does_not_fit,
        " +\n                           taps_of.shift(batch, axis);",
        ";",
    ),
    "filters of a phase that are summed in float32": (
        of_a_weight_that_does_not_fit,
        "number % c.filters / kColumns * weight.filter",
        "number % 2 * weight.filter",
    ),
    "memory of parts": (
        in_parts,
        "splits > 1 ? splits * rows * c.filters : 0);\n    }\n    static bool takes",
        "splits > 1 ? rows * c.filters : 0);\n    }\n    static bool takes",
    ),
}


# Some of them in every run, all in the slow ones.
QUICK = (
    *("a phase at the place of another", "elements that a phase has not", "the order of taps"),
    *("the first tap", "the steps of taps", "the steps of the epilogue"),
    "windows of a phase in float32",
)


@pytest.mark.parametrize("fault", quick_first(FAULTS, QUICK))
def test_a_fault_shows(fault: str) -> None:
    """The check takes the kernel as it is, and not the broken one."""
    check, sound, broken = FAULTS[fault]
    source = text(NARROW, lanes=LANES)
    assert sound in source, "the kernel says it otherwise"
    check(source)
    with pytest.raises((AssertionError, EmulationFault)):
        check(source.replace(sound, broken))
