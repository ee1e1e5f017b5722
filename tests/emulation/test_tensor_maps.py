"""Copies by tensor maps as the PTX ISA says of them: boxes, windows, zeros outside, clusters."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.emulation.emulate import EmulationFault, emulate

from opweld.device import pieces

# A box of a map of x into shared memory, as it stands there, in each block of a cluster. `at`: the
# place of a tile, or channel, corner, image, offsets of windows, the outermost axis first. Rows of
# a box have kWidth values.
TEXT = r"""
constexpr int kRows = 8, kRowBytes = 2 * kWidth;
constexpr CUtensorMapSwizzle kSwizzle = kWidth == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                        : kWidth == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                       : CU_TENSOR_MAP_SWIZZLE_32B;
struct alignas(1024) Memory {
  unsigned char box[kRows * kRowBytes];
  op::Barrier full;
};

__global__ void copy_kernel(const CUtensorMap map, int kind, const int* at, int shift,
                            unsigned char* out) {
  auto& own = op::tile_memory<Memory>();
  void* const to = own.box + shift;
  if (threadIdx.x == 0) {
    own.full.init(1);
    op::publish_barriers();
  }
  op::sync_cluster();
  if (threadIdx.x == 0) {
    own.full.expect(kRows * kRowBytes);
    if (kind == 0) op::copy_tile<false>(to, &map, own.full, at[0], at[1], at[2], 0);
    if (kind == 1 && op::rank_in_cluster() == 1)
      op::copy_tile<true>(to, &map, own.full, at[0], at[1], at[2], uint16_t(at[3]));
    const int corner[3] = {at[1], at[2], at[3]}, offset[3] = {at[5], at[6], at[7]};
    if (kind == 2) op::copy_windows<2>(to, &map, own.full, at[0], corner, at[4], offset);
    if (kind == 3) op::copy_windows<3>(to, &map, own.full, at[0], corner, at[4], offset);
  }
  own.full.wait(0);
  for (int i = threadIdx.x; i < kRows * kRowBytes; i += 32) {
    out[blockIdx.x * kRows * kRowBytes + i] = own.box[i];
  }
  op::sync_cluster();
}

static int run(const CUtensorMap& map, int kind, const int* at, int shift, void* out, int blocks) {
  op::Launch launch(blocks, 32, op::kTileMemoryBytes<Memory>, nullptr);
  launch.in_clusters(blocks);
  return launch.run(copy_kernel, map, kind, at, shift, static_cast<unsigned char*>(out));
}

template <typename Encode>
static Encode encoder(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
  return reinterpret_cast<Encode>(found);
}

// sizes from the innermost axis on, without gaps
struct Axes {
  cuuint64_t size[5], stride[4];
  Axes(const int* sizes, int rank) {
    cuuint64_t bytes = 2;
    for (int i = 0; i < rank; ++i) {
      size[i] = sizes[i], bytes *= sizes[i];
      if (i + 1 < rank) stride[i] = bytes;
    }
  }
};

extern "C" int copy_tile(const void* x, const int* sizes, int kind, const int* at, int shift,
                         void* out, int blocks, void* stream) {
  const Axes axes(sizes, 3);
  const cuuint32_t box[3] = {kBoxWidth, 4, 2}, steps[3] = {1, 1, 1};
  CUtensorMap map;
  const auto encode = encoder<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled");
  const CUresult result = encode(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void*>(x), axes.size, axes.stride, box,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, kSwizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result != CUDA_SUCCESS ? 99 : run(map, kind, at, shift, out, blocks);
}

extern "C" int copy_windows(const void* x, int space, const int* sizes, const int* corners,
                            const int* steps, const int* at, void* out, void* stream) {
  const int rank = space + 2;
  const Axes axes(sizes, rank);
  const cuuint32_t step[5] = {1, cuuint32_t(steps[0]), cuuint32_t(steps[1]),
                              space == 3 ? cuuint32_t(steps[2]) : 1u, 1};
  CUtensorMap map;
  const auto encode = encoder<PFN_cuTensorMapEncodeIm2col_v12000>("cuTensorMapEncodeIm2col");
  const CUresult result = encode(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, rank, const_cast<void*>(x), axes.size, axes.stride,
      corners, corners + space, kBoxWidth, 8, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
      kSwizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result != CUDA_SUCCESS ? 99 : run(map, space, at, 0, out, 1);
}
"""
REFUSED = "99"
NEEDED = ["Launch", "cluster", "copy_tile", "copy_windows", "sync_cluster", "tile_memory"]


WIDTHS = (64, 32, 16)
"""Values of a row, whose bytes are those of its swizzle."""


@cache
def text(width: int = 64, box_width: int | None = None) -> str:
    constants = f"constexpr int kWidth = {width}, kBoxWidth = {box_width or width};"
    return "\n".join([*pieces(NEEDED), constants, TEXT])


def unswizzled(found: np.ndarray, width: int = 64) -> np.ndarray:
    """Rows of so many values: the packets of a row change places by the number of its 128 bytes,
    which are a row of 64 values, two of 32 or four of 16.
    """
    count = width // 8
    packets = found.view(np.uint16).reshape(-1, count, 8)
    lines = np.arange(len(packets)) * count // 8 % count
    return packets[np.arange(len(packets))[:, None], np.arange(count) ^ lines[:, None]].reshape(
        -1, width
    )


def numbered(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape), dtype=np.uint16).reshape(shape)


def tile(
    at: tuple[int, ...],
    *,
    kind: int = 0,
    blocks: int = 1,
    shift: int = 0,
    width: int = 64,
    **options: str,
) -> list[np.ndarray]:
    """What 2 by 4 rows of 64 of x[3, 5, 72] are from `at` on, innermost axis first."""
    x, out = numbered(3, 5, 72), np.zeros((blocks, 16 * width), np.uint8)
    place = np.array([*at, *(0,) * (8 - len(at))], np.int32)
    arguments = [x, np.array([72, 5, 3], np.int32), kind, place, shift, out]
    emulate(text(width), "copy_tile", [*arguments, blocks], **options)
    return [unswizzled(each, width) for each in out]


def expected_tile(x0: int, y0: int, z0: int, width: int = 64) -> np.ndarray:
    padded = np.zeros((3 + 8, 5 + 8, 72 + 160), np.uint16)
    padded[4:7, 4:9, 80:152] = numbered(3, 5, 72)
    return padded[z0 + 4 : z0 + 6, y0 + 4 : y0 + 8, x0 + 80 : x0 + 80 + width].reshape(8, width)


@pytest.mark.parametrize("at", [(0, 0, 0), (8, 1, 1), (64, 3, 2), (-8, -2, -1), (0, 5, 0)], ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_tile_has_zeros_outside_of_its_tensor(at: tuple[int, int, int], width: int) -> None:
    np.testing.assert_array_equal(tile(at, width=width)[0], expected_tile(*at, width))


@pytest.mark.parametrize(("width", "box"), [(64, 32), (32, 64), (32, 16), (16, 32)])
def test_rows_of_a_box_are_as_long_as_its_swizzle(width: int, box: int) -> None:
    out = np.zeros(16 * width, np.uint8)
    sizes, place = np.array([72, 5, 3], np.int32), np.zeros(8, np.int32)
    with pytest.raises(EmulationFault, match=REFUSED):
        emulate(text(width, box), "copy_tile", [numbered(3, 5, 72), sizes, 0, place, 0, out, 1])


@pytest.mark.parametrize("order", ["forward", "reverse", "seeded"])
def test_one_block_copies_for_all_of_its_cluster(order: str) -> None:
    for found in tile((8, 1, 1, 0b11), kind=1, blocks=2, order=order):
        np.testing.assert_array_equal(found, expected_tile(8, 1, 1))


def test_a_block_that_is_left_out_waits_for_ever() -> None:
    with pytest.raises(EmulationFault, match="waits at a barrier of its own"):
        tile((8, 1, 1, 0b10), kind=1, blocks=2)


def test_a_block_that_is_not_in_the_cluster() -> None:
    with pytest.raises(EmulationFault, match="no block 2 in the cluster"):
        tile((8, 1, 1, 0b111), kind=1, blocks=2)


def test_misaligned_tiles() -> None:
    with pytest.raises(EmulationFault, match="misaligned access: a tile"):
        tile((0, 0, 0), shift=16)


SIZES = {2: (72, 5, 4, 3), 3: (72, 3, 4, 2, 2)}  # channels, width, height, (depth,) images


def windows(
    lower: tuple[int, ...],
    upper: tuple[int, ...],
    steps: tuple[int, ...],
    at: tuple[int, ...],
    offset: tuple[int, ...],
    width: int = 64,
) -> np.ndarray:
    """Eight pixels of x[image, (depth,) height, width, channel]; `at` with channel and image."""
    sizes, out = SIZES[len(steps)], np.zeros(16 * width, np.uint8)
    x = numbered(*sizes[::-1])
    none = (0,) * (3 - len(steps))
    place = (at[0], *none, *at[-2:0:-1], at[-1], *none, *offset[::-1])
    integers = [np.array(each, np.int32) for each in (sizes, lower + upper, steps, place)]
    emulate(text(width), "copy_windows", [x, len(steps), *integers, out])
    return unswizzled(out, width)


def expected_windows(
    lower: tuple[int, ...],
    upper: tuple[int, ...],
    steps: tuple[int, ...],
    at: tuple[int, ...],
    offset: tuple[int, ...],
) -> np.ndarray:
    """By a list of all corners of all images."""
    channels, *size, images = SIZES[len(steps)]
    x = numbered(*SIZES[len(steps)][::-1])
    ranges = [
        range(low, n + up, step) for low, n, up, step in zip(lower, size, upper, steps, strict=True)
    ]
    corners: list[tuple[int, ...]] = [()]
    for each in (*ranges, range(images + 9)):
        corners = [(*inner, value) for value in each for inner in corners]
    first = corners.index(at[1:])
    rows = np.zeros((8, 64), np.uint16)
    for row, (*corner, image) in enumerate(corners[first : first + 8]):
        place = [c + o for c, o in zip(corner, offset, strict=True)]
        if image < images and all(0 <= p < n for p, n in zip(place, size, strict=True)):
            pixel = x[(image, *place[::-1])][at[0] : at[0] + 64]
            rows[row, : len(pixel)] = pixel
    return rows


PLANE = {
    "whole rows": ((0, 0), (0, 0), (1, 1), (0, 0, 0, 0), (0, 0)),
    "from row to row": ((0, 0), (-2, -2), (1, 1), (0, 1, 0, 1), (2, 1)),
    "from image to image": ((-1, -1), (-1, -1), (1, 1), (8, 3, 2, 0), (0, 2)),
    "beyond the last image": ((0, 0), (0, 0), (1, 1), (0, 3, 3, 2), (0, 0)),
    "in steps": ((-1, -2), (0, 1), (2, 3), (64, -1, 1, 1), (1, 1)),
    "a step that ends before the box": ((0, 0), (-1, 0), (3, 1), (0, 0, 2, 0), (1, 0)),
    "outside alone": ((-9, 0), (-12, 0), (1, 1), (0, -8, 0, 0), (3, 0)),
}
SPACE = {
    "from depth to depth": ((-1, 0, -1), (0, -1, 0), (1, 2, 1), (0, 2, 2, -1, 0), (1, 1, 0)),
    "from image to image": ((0, 0, 0), (-1, -2, 0), (1, 1, 1), (0, 1, 1, 1, 0), (1, 0, 0)),
}


@pytest.mark.parametrize("windows_of", PLANE)
def test_windows_of_a_plane(windows_of: str) -> None:
    given = PLANE[windows_of]
    expected = expected_windows(*given)
    for width in WIDTHS:
        np.testing.assert_array_equal(windows(*given, width), expected[:, :width])


@pytest.mark.parametrize("windows_of", SPACE)
def test_windows_of_space(windows_of: str) -> None:
    given = SPACE[windows_of]
    np.testing.assert_array_equal(windows(*given), expected_windows(*given))


@pytest.mark.parametrize(
    ("lower", "upper", "steps"),
    [
        ((-129, 0), (0, 0), (1, 1)),
        ((0, 0), (128, 0), (1, 1)),
        ((0, 0), (0, 0), (9, 1)),
        ((0, 0), (-5, 0), (1, 1)),
        ((-17, 0, 0), (0, 0, 0), (1, 1, 1)),
        ((0, 0, 0), (0, 16, 0), (1, 1, 1)),
    ],
    ids=str,
)
def test_what_the_driver_refuses(
    lower: tuple[int, ...], upper: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    zeros = (0,) * len(steps)
    with pytest.raises(EmulationFault, match=REFUSED):
        windows(lower, upper, steps, (0, *zeros, 0), zeros)


def test_a_corner_outside_of_the_box() -> None:
    with pytest.raises(EmulationFault, match="corner outside of the box"):
        windows((0, 0), (-2, 0), (1, 1), (0, 3, 0, 0), (0, 0))


def test_an_offset_that_does_not_fit() -> None:
    with pytest.raises(EmulationFault, match="offset of more bits"):
        windows((0, 0), (0, 0), (1, 1), (0, 0, 0, 0), (256, 0))
