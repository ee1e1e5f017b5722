"""How the input of convolutions of few channels is packed, bit by bit beside NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.emulation.convolution_models import quick_first
from tests.emulation.convolutions import Case, Windows, channels_last, normal, numbers_of, windows
from tests.emulation.emulate import EmulationFault, emulate
from tests.emulation.products import reach

from opweld.device import pieces
from opweld.device.used import used

LAUNCHER = """
template <int kParts, int kWidth>
static __global__ void __launch_bounds__(256)
    pack_pixels_kernel(const __grid_constant__ op::JoinedPixels<kWidth> pixels, half* packed,
                       float* scale) {
  pixels.template pack<kParts>(blockIdx.x, packed, scale);
}
template <int kParts, int kWidth>
static int pack_of(const void* x, const int64_t* n, int rows, void* packed, void* scale,
                   int64_t* facts, void* stream) {
  op::Convolution c{x, nullptr, n[0], n[1], n[2], n[3], n[4], n[5]};
  int* const all[6] = {c.size, c.kernel, c.stride, c.padding, c.dilation, c.out};
  for (int i = 0; i < 18; ++i) all[i / 3][i % 3] = int(n[6 + i]);
  const op::JoinedRows by(c, rows);
  const op::JoinedPixels<kWidth> pixels(by);
  facts[0] = by.to.pixels(), facts[1] = pixels.in_tiles, facts[2] = pixels.rows_of_block;
  facts[3] = pixels.columns;
  op::Launch launch(pixels.num_blocks(), 256, 0, static_cast<cudaStream_t>(stream));
  auto* const halves = static_cast<half*>(packed);
  auto* const scales = static_cast<float*>(scale);
  if (!packed) return 0;
  return launch.run(pack_pixels_kernel<kParts, kWidth>, pixels, halves, scales);
}
extern "C" int pack_pixels(const void* x, const int64_t* n, int rows, int parts, int width,
                           void* packed, void* scale, int64_t* facts, void* stream) {
  const auto pack = parts == 2    ? pack_of<2, 64>
                    : width == 64 ? pack_of<1, 64>
                    : width == 32 ? pack_of<1, 32>
                                  : pack_of<1, 16>;
  return pack(x, n, rows, packed, scale, facts, stream);
}
"""
LEAST_KEPT = {1: 2.0**-13, 2: 1.0}


@cache
def text() -> str:
    return "\n".join(
        [*used(pieces(["Launch", "half", "half_header", "pack_joined"]), [LAUNCHER]), LAUNCHER]
    )


def joined(x: np.ndarray, case: Case, rows: int, width: int) -> np.ndarray:
    """The input that a convolution has where `rows` of its rows are joined: float32[image, depth,
    row, output column, channels], rounded up to whole intervals of this width.
    """
    how, space = case.how, len(case.kernel)
    channels, across = case.channels, case.kernel[-1]
    *_, down = (1, *case.kernel[:-1])
    *_, stride = (1, *how.stride[:-1])
    *_, dilation = (1, *how.dilation[:-1])
    *_, padding = (0, *how.padding[:-1])
    out = (1, 1, 1, *how.out(case.size, case.kernel))[-3:]
    x = x.reshape(len(x), channels, *(1,) * (3 - space), *case.size)
    depth, height, columns = x.shape[2:]
    below = -(-down // rows)
    packed_rows = out[1] + (below - 1) * rows * dilation // stride
    result = np.zeros((len(x), depth, packed_rows, out[2], rows, channels, across), np.float32)
    for row, own, tap in np.ndindex(packed_rows, rows, across):
        y = row * stride - padding + own * dilation
        at = np.arange(out[2]) * how.stride[-1] - how.padding[-1] + tap * how.dilation[-1]
        inside = (at >= 0) & (at < columns)
        if 0 <= y < height:
            seen = x[:, :, :, y, at[inside]]
            result[:, :, row, inside, own, :, tap] = seen.transpose(3, 0, 2, 1)
    flat = result.reshape(*result.shape[:4], -1)
    return np.pad(flat, [(0, 0)] * 4 + [(0, -flat.shape[-1] % width)])


def expected(values: np.ndarray, parts: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Halves uint16[image, pixel, interval, width * parts] and scales float32[image, interval,
    pixel] of what `joined` gives.
    """
    images, intervals = len(values), values.shape[-1] // width
    values = values.reshape(images, -1, intervals, width)
    bits = values.view(np.uint32) & 0x7FFFFFFF
    largest = bits.max(-1)
    exponent = (largest >> 23).astype(int) - 127
    up = np.where(exponent == -127, 0, np.clip(14 - exponent, -66, 126))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values * np.ldexp(np.float32(1), up).astype(np.float32)[..., None]
    lost = (scaled != 0) & (abs(scaled) < LEAST_KEPT[parts])
    loses = 16 * lost.sum(-1) > (scaled != 0).sum(-1)
    fits = (largest == 0) | ((exponent >= -110) & (exponent <= 80))
    scale = np.where(largest == 0, 0, np.ldexp(np.float32(1), -up)).astype(np.float32)
    scale = (scale.view(np.uint32) | loses | 2 * ~fits).astype(np.uint32).view(np.float32)
    vanishes = (scaled != 0) & (abs(scaled) < 2.0**-24)
    kept = np.where(vanishes, np.copysign(np.float32(2.0**-24), scaled), scaled)
    with np.errstate(over="ignore", invalid="ignore"):
        upper = kept.astype(np.float16)
        lower = (kept - upper.astype(np.float32)).astype(np.float16)
    if parts == 2:
        chunks = [part.reshape(*part.shape[:-1], 2, 1, 32) for part in (upper, lower)]
        upper = np.concatenate(chunks, axis=-2)
    return upper.reshape(*values.shape[:3], -1), scale.transpose(0, 2, 1)


def pack(
    x: np.ndarray,
    case: Case,
    rows: int,
    parts: int,
    width: int,
    source: str | None = None,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Halves and scales as `expected` has them, and what the launcher tells."""
    weight = np.empty((1, case.channels, *case.kernel), np.float32)
    numbers = numbers_of(x, weight, case.how)
    memory = np.lib.stride_tricks.as_strided(x, (reach(x),), (x.itemsize,)).copy()
    facts = np.zeros(4, np.int64)
    call = [memory, numbers, rows, parts, width]
    emulate(source or text(), "pack_pixels", [*call, None, None, facts], **options)
    intervals = -(-rows * case.channels * case.kernel[-1] // width)
    packed = np.full((len(x), facts[0], intervals, width * parts), 0x7BFF, np.uint16)
    scale = np.full((len(x), intervals, facts[0]), -1.0, np.float32)
    emulate(source or text(), "pack_pixels", [*call, packed, scale, facts], **options)
    return packed.view(np.float16), scale, facts


def require(
    case: Case,
    rows: int,
    parts: int = 1,
    width: int = 64,
    *,
    x: np.ndarray | None = None,
    in_tiles: bool = True,
    source: str | None = None,
    **options: Any,
) -> np.ndarray:
    """Gives what the launcher tells."""
    x = normal(case.batch, case.channels, *case.size) if x is None else x
    packed, scale, facts = pack(x, case, rows, parts, width, source, **options)
    halves, scales = expected(joined(x, case, rows, width), parts, width)
    np.testing.assert_array_equal(scale.view(np.uint32), scales.view(np.uint32))
    np.testing.assert_array_equal(packed, halves)  # NaN are alike
    zeros = halves == 0
    np.testing.assert_array_equal(np.signbit(packed[zeros]), np.signbit(halves[zeros]))
    assert facts[1] == in_tiles
    return facts


def layouts(x: np.ndarray) -> list[np.ndarray]:
    """The same tensor among NaN and infinities of a larger one: channels first and last, whole and
    among others.
    """
    pads = ((1, 1), (2, 3), *((0, 0),) * (x.ndim - 2))
    framed = np.pad(x, pads, constant_values=np.nan)
    framed[:, -1:] = np.inf
    inner = (slice(1, -1), slice(2, -3))
    return [x, channels_last(x), framed[inner], channels_last(framed)[inner]]


STEM = Case(2, 3, (9, 21), 1, (7, 7), windows(2, 2, 3))
CASES = {
    "a stem": (STEM, 8),
    "a stem of two rows": (STEM, 2),
    "of three axes": (Case(2, 3, (3, 5, 12), 1, (3, 3, 3), windows(3, 1, 1)), 3),
    "one axis": (Case(2, 5, (70,), 1, (9,), windows(1, 3, 4)), 1),
    "patches": (Case(3, 3, (32, 48), 1, (16, 16), windows(2, 16)), 16),
    "strides of eight": (Case(2, 5, (20, 150), 1, (9, 3), windows(2, 8, 1)), 8),
    "odd strides": (Case(2, 4, (11, 40), 1, (5, 5), Windows((2, 5), (1, 2), (1, 1))), 4),
    "dilation": (Case(2, 6, (14, 30), 1, (3, 5), Windows((1, 2), (3, 5), (3, 3))), 3),
    "one tap across": (Case(2, 17, (12, 40), 1, (9, 1), Windows((1, 2), (4, 0), (1, 1))), 5),
    "many channels": (Case(1, 32, (8, 37), 1, (5, 5), windows(2, 1, 2)), 3),
    "an interval and a value": (Case(1, 5, (4, 9), 1, (1, 13), Windows((1, 1), (0, 6), (1, 1))), 1),
    "cropped": (Case(2, 3, (9, 30), 1, (3, 3), Windows((1, 1), (-1, -2), (1, 1))), 3),
    "beyond the image": (Case(1, 3, (5, 4), 1, (3, 3), Windows((1, 1), (6, 9), (1, 1))), 3),
}


@pytest.mark.parametrize("name", CASES)
def test_packed_as_numpy_packs(name: str) -> None:
    case, rows = CASES[name]
    x = normal(case.batch, case.channels, *case.size)
    for i, layout in enumerate(layouts(x)):
        require(case, rows, parts=1 + i % 2, x=layout, multiprocessors=1 + i)
    for width in (32, 16):
        require(case, rows, width=width, x=layouts(x)[width // 32])


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 31, 33, 255, 256, 257, 300])
def test_columns(columns: int) -> None:
    case = Case(1, 3, (2, columns), 1, (3, 3), windows(2, 1, 1))
    facts = require(case, 3, multiprocessors=1)
    assert (facts[3] == columns) == (columns <= 256)


def test_segments_that_a_tile_bounds() -> None:
    case = Case(1, 64, (1, 400), 1, (1, 1), windows(2, 1))
    assert require(case, 1)[3] == 128


def test_rows_of_several_images_in_a_block() -> None:
    case = Case(7, 2, (3, 12), 1, (3, 3), windows(2, 1, 1))
    x = normal(7, 2, 3, 12)
    for layout in layouts(x):
        facts = require(case, 3, 2, x=layout, multiprocessors=1)
        assert facts[2] == 4  # of 21 rows: five blocks


READ_ONE_BY_ONE = {
    "taps far apart": (Case(2, 20, (7, 700), 1, (1, 2), Windows((1, 1), (0, 20), (1, 600))), 1),
    "wide strides": (Case(1, 3, (4, 5000), 1, (2, 300), windows(2, 301)), 2),
    "far pixels": (Case(1, 2, (4, 70), 1, (3, 3), windows(2, 1, 1)), 3),
}


@pytest.mark.parametrize("name", READ_ONE_BY_ONE)
def test_what_no_tile_holds_is_read_one_by_one(name: str) -> None:
    case, rows = READ_ONE_BY_ONE[name]
    x = normal(case.batch, case.channels, *case.size)
    source = text()
    if name == "far pixels":  # as if 2^24 elements were no more
        source = source.replace("kFar = 1 << 24", "kFar = 1 << 4")
    for i, layout in enumerate(layouts(x)):
        require(case, rows, 1 + i % 2, x=layout, in_tiles=False, source=source)


def odd_values(seed: int) -> np.ndarray:
    """Zeros, tiny, huge values and what is no number, among others."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((2, 3, 9, 21), np.float32)
    x[random.random(x.shape) < 0.3] = 0.0
    x[random.random(x.shape) < 0.1] *= -0.0
    for share, values in ((0.2, [2.0**-12, -(2.0**-14), 3e-5]), (0.1, [2.0**-28, 1e-12, -1e-30])):
        few = random.random(x.shape) < share * (seed % 3) / 2
        x[few] *= random.choice(np.array(values, np.float32), few.sum())
    if seed >= 3:
        odd = np.array([np.nan, -np.nan, np.inf, -np.inf, 1e-40, -1e-45, 1e30, 1e-36], np.float32)
        few = random.random(x.shape) < 0.01
        x[few] = random.choice(odd, few.sum())
    if seed == 6:
        x[:] = np.where(random.random(x.shape) < 0.5, np.float32(1e-42), np.float32(0))
    return x


@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize("parts", [1, 2])
def test_any_values(seed: int, parts: int) -> None:
    require(STEM, 2, parts, x=odd_values(seed))
    for width in (32, 16) if parts == 1 else ():
        require(STEM, 2, width=width, x=odd_values(seed))


def test_the_least_value_that_is_kept() -> None:
    """One below it loses digits, which alone in its interval is more than one in 16."""
    case = Case(1, 1, (1, 4), 1, (1, 2), windows(2, 1))
    for parts, least in LEAST_KEPT.items():
        kept = np.float32(least / 2.0**14)
        x = np.array([[[[1.0, kept, 1.0, np.nextafter(kept, np.float32(0))]]]], np.float32)
        require(case, 1, parts, x=x)
        marks = pack(x, case, 1, parts, 64)[1].view(np.uint32) & 3
        assert marks.tolist() == [[[0, 0, 1]]]


FAULTS = {
    "zeros behind the taps": ("own < values ? place : pixels.lines * pixels.pitch", "place"),
    "columns left of the image": ("place < 0 ? ~0u : unsigned(at)", "unsigned(max(at, 0))"),
    "rows above the image": ("unsigned(y) < unsigned(c.size[1]) ?", "y < c.size[1] ?"),
    "values that lose digits": ("nearest == 0 || ", "true || "),
    "no padding across": ("begin * pixels.by.from.stride[2] - pixels.by.from.padding[2]", "begin"),
    "the image of a row": ("(c.x) + image * c.batch", "(c.x)"),
    "the scale of an image": ("int(pixels.intervals.by - 1) * image + interval", "interval"),
    "the second octet": ("to + i * kStep * kParts", "to"),
    "the next segment": ("(segment - band * int(pixels.segments.by)) * pixels.columns", "0"),
}


QUICK = ("zeros behind the taps", "values that lose digits", "the second octet", "the next segment")


@pytest.mark.parametrize("fault", quick_first(FAULTS, QUICK))
def test_a_fault_shows(fault: str) -> None:
    right, wrong = FAULTS[fault]
    source = text()
    assert source.count(right) == 1
    case = Case(2, 3, (5, 260), 1, (5, 5), Windows((1, 1), (2, 2), (1, 1)))
    x = normal(2, 3, 5, 260)
    x[0, 0, 2, 5] = 1e-12
    require(case, 5, x=x)
    with pytest.raises((AssertionError, EmulationFault)):
        require(case, 5, x=x, source=source.replace(right, wrong))
