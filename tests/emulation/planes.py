"""Runs op::planes on the CPU: a text with a launcher for each way, and calls of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from tests.emulation import depthwise
from tests.emulation.depthwise import Filters, launch, memory_of, steps_of, three
from tests.emulation.products import EPILOGUE

from opweld.device import pieces
from opweld.device.used import used

LAUNCHER = """
extern "C" int convolution(const void* x, const void* weight, const int64_t* n, void* result,
                           void* times, int narrow, int aligned, void* stream) {{
  const op::Planes conv{{{{x, weight, n[0], n[1], n[2], {{n[3], n[4], n[5]}}, {{n[6], n[7], n[8]}},
                         n[9], {{n[10], n[11], n[12]}}, {{n[13], n[14], n[15]}},
                         {{n[16], n[17], n[18]}}, {{n[19], n[20], n[21]}},
                         {{n[22], n[23], n[24]}}}},
                        n[25], n[26], {{n[27], n[28], n[29]}}}};
  const Keep<{lanes}> keep{{static_cast<float*>(result), static_cast<int*>(times)}};
  return op::planes<op::{tiles}>(&conv, keep, narrow ? 0 : 1ll << 31, aligned, stream);
}}
"""


@dataclass(frozen=True, slots=True)
class Call(depthwise.Call):
    """The same of planes, by tiles that are made for float32 alone."""

    tiles: str = "AnyPlanes"
    lanes: int = 4


def tiles_of(filters: Filters) -> str:
    """The tiles that are made for such filters."""
    _, *stride = three(filters.stride, 1)
    _, *dilation = three(filters.dilation, 1)
    numbers = (*three(filters.taps, 1), *stride, *dilation, filters.before[-1])
    return f"PlaneTiles<{', '.join(map(str, numbers))}>"


@cache
def text(tiles: str, lanes: int) -> str:
    launcher = LAUNCHER.format(tiles=tiles, lanes=lanes)
    users = [EPILOGUE, launcher]
    return "\n".join([*used(pieces(["planes", tiles.partition("<")[0]]), users), *users])


def convolution(
    x: np.ndarray,
    weight: np.ndarray,
    filters: Filters,
    call: Call = Call(),
    source: str | None = None,
) -> np.ndarray:
    """result[image, channel, *places] by op::planes from x[image, channel, *places] and
    weight[channel, *taps], both of any strides. The result is full of NaN before, and each value
    must be handed over once.
    """
    places, channels = filters.places(x.shape[2:]), weight.shape[0]
    result = np.full((x.shape[0], channels, *places), np.nan, np.float32)
    image_step, channel_step, *steps = steps_of(x)
    filter_step, *tap_steps = steps_of(weight)
    numbers = np.array(
        [
            *(x.shape[0], channels, channels // x.shape[1]),
            *(*three(x.shape[2:], 1), *three(places, 1)),
            *(image_step, *three(steps, 0)),
            *three(filters.taps, 1),
            *three(filters.stride, 1),
            *three(filters.before, 0),
            *three(filters.dilation, 1),
            *(channel_step, filter_step, *three(tap_steps, 0)),
        ],
        np.int64,
    )
    launch(source or text(call.tiles, call.lanes), x, memory_of(weight), numbers, result, call)
    return result


def exact(x: np.ndarray, weight: np.ndarray, filters: Filters) -> np.ndarray:
    """The same in float64, of float64 operands; what is not there adds nothing."""
    return np.moveaxis(depthwise.exact(np.moveaxis(x, 1, -1), weight, filters), -1, 1)
