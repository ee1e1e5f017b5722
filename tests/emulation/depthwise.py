"""Runs op::depthwise on the CPU: a text with a launcher for each way, and calls of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from tests.emulation.emulate import Shifted, emulate, from_bfloat16, to_bfloat16
from tests.emulation.products import EPILOGUE

from opweld.device import pieces
from opweld.device.used import used

STORED = {"float": "float", "half": "op::half", "bfloat16": "op::bfloat16"}
LAUNCHER = """
extern "C" int {name}(const void* x, const void* weight, const int64_t* n, void* result,
                      void* times, int narrow, int aligned, void* stream) {{
  const op::Depthwise conv{{x, weight, n[0], n[1], n[2], {{n[3], n[4], n[5]}}, {{n[6], n[7], n[8]}},
                           n[9], {{n[10], n[11], n[12]}}, {{n[13], n[14], n[15]}},
                           {{n[16], n[17], n[18]}}, {{n[19], n[20], n[21]}},
                           {{n[22], n[23], n[24]}}}};
  const Keep<{lanes}> keep{{static_cast<float*>(result), static_cast<int*>(times)}};
  return op::depthwise<op::{tiles}, {storage}>(&conv, keep, narrow ? 0 : 1ll << 31, aligned,
                                               stream);
}}
"""


@dataclass(frozen=True, slots=True)
class Filters:
    """Sizes of taps along up to three axes, and how they go over x; `before` and `after` are zeros
    there, of which only the first are told to the kernel.
    """

    taps: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]

    @staticmethod
    def of(
        taps: Sequence[int], stride: int = 1, before: int = 0, after: int = 0, dilation: int = 1
    ) -> Filters:
        numbers = (stride, before, after, dilation)
        return Filters(tuple(taps), *((number,) * len(taps) for number in numbers))

    def places(self, extent: Sequence[int]) -> tuple[int, ...]:
        axes = zip(
            extent, self.taps, self.stride, self.before, self.after, self.dilation, strict=True
        )
        return tuple(
            (size + before + after - dilation * (taps - 1) - 1) // stride + 1
            for size, taps, stride, before, after, dilation in axes
        )


@dataclass(frozen=True, slots=True)
class Call:
    """How a convolution is called: by which tiles where they take it, of what storage. For {} in
    `tiles` stands how far places of x lie apart.
    """

    tiles: str = "AnyTaps"
    storage: str = "float"
    lanes: int = 2
    narrow: bool = True
    aligned: bool = True
    shift: int = 0  # elements from 256-byte alignment, of x
    multiprocessors: int = 1
    options: dict[str, object] = field(default_factory=dict)


@cache
def text(tiles: str, storage: str, lanes: int) -> str:
    launcher = LAUNCHER.format(
        name="convolution", tiles=tiles, storage=STORED[storage], lanes=lanes
    )
    needed = ["depthwise", tiles.partition("<")[0]]
    needed += [storage] if storage != "float" else []
    users = [EPILOGUE, launcher]
    return "\n".join([*used(pieces(needed), users), *users])


def convolution(
    x: np.ndarray,
    weight: np.ndarray,
    filters: Filters,
    call: Call = Call(),
    source: str | None = None,
) -> np.ndarray:
    """result[image, *places, channel] by op::depthwise from stored x[image, *places, channel], of
    any strides but along channels, and weight[channel, *taps]. The result is full of NaN before,
    and each value must be handed over once.
    """
    places = filters.places(x.shape[1:-1])
    channels = weight.shape[0]
    result = np.full((x.shape[0], *places, channels), np.nan, np.float32)
    steps = steps_of(x)
    assert steps[-1] == 1
    numbers = np.array(
        [
            *(x.shape[0], channels, channels // x.shape[-1]),
            *(*three(x.shape[1:-1], 1), *three(places, 1)),
            *(steps[0], *three(steps[1:-1], 0)),
            *three(filters.taps, 1),
            *three(filters.stride, 1),
            *three(filters.before, 0),
            *three(filters.dilation, 1),
        ],
        np.int64,
    )
    source = source or text(call.tiles.format(steps[-2]), call.storage, call.lanes)
    launch(source, x, weight, numbers, result, call)
    return result


def launch(
    source: str,
    x: np.ndarray,
    weight: np.ndarray,
    numbers: np.ndarray,
    result: np.ndarray,
    call: Call,
) -> None:
    """Calls the launcher; each value of the result must be handed over once."""
    memory, times = memory_of(x), np.zeros(result.shape, np.int32)
    given = Shifted(memory, call.shift * x.itemsize) if call.shift else memory
    arguments = [given, weight, numbers, result, times, int(call.narrow), int(call.aligned)]
    options = {"multiprocessors": call.multiprocessors, **call.options}
    emulate(source, "convolution", arguments, **options)
    assert (times == 1).all(), f"handed over {np.unique(times)} times"


def exact(x: np.ndarray, weight: np.ndarray, filters: Filters) -> np.ndarray:
    """The same in float64, of float64 operands; what is not there adds nothing."""
    spatial, places = x.shape[1:-1], filters.places(x.shape[1:-1])
    total = np.zeros((x.shape[0], *places, weight.shape[0]))
    x = np.repeat(x, weight.shape[0] // x.shape[-1], axis=-1)
    for tap in np.ndindex(*filters.taps):
        axes = zip(
            *(spatial, places, tap, filters.stride, filters.before, filters.dilation), strict=True
        )
        pairs = [
            [(p, at) for p in range(count) if 0 <= (at := p * step - before + i * far) < size]
            for size, count, i, step, before, far in axes
        ]
        if not all(pairs):
            continue
        to = np.ix_(range(x.shape[0]), *([p for p, _ in pair] for pair in pairs))
        source = np.ix_(range(x.shape[0]), *([at for _, at in pair] for pair in pairs))
        total[to] += x[source] * weight[(slice(None), *tap)]
    return total


def stored(values: np.ndarray, storage: str) -> np.ndarray:
    """float32 values rounded to a storage, as emulate wants them."""
    if storage == "half":
        return values.astype(np.float16)
    return to_bfloat16(values).reshape(values.shape) if storage == "bfloat16" else values


def widened(values: np.ndarray, storage: str) -> np.ndarray:
    """What stored values mean, in float64."""
    return (from_bfloat16(values) if storage == "bfloat16" else values).astype(np.float64)


def three(numbers: Sequence[int], missing: int) -> tuple[int, ...]:
    """Of depth, height and width."""
    return (*(missing,) * (3 - len(numbers)), *numbers)


def steps_of(array: np.ndarray) -> list[int]:
    """Strides in elements; NumPy says nothing of how an array without elements lies."""
    strides = array.strides
    if not array.size:
        strides = np.ones([max(n, 1) for n in array.shape], array.dtype).strides
    return [stride // array.itemsize for stride in strides]


def memory_of(view: np.ndarray) -> np.ndarray:
    """The elements from the first to the last of a view."""
    pairs = zip(view.shape, view.strides, strict=True)
    reach = sum((extent - 1) * stride // view.itemsize for extent, stride in pairs)
    count = 1 + reach if view.size else 0
    return np.lib.stride_tricks.as_strided(view, (count,), (view.itemsize,)).copy()


def values(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal ones."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def require_alike(found: np.ndarray, true: np.ndarray) -> None:
    """What is no number, or infinite, where it is so in float64, of which there is something."""
    assert not np.isfinite(true).all()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(true))
    np.testing.assert_allclose(found, true, rtol=1e-5, atol=1e-5)
