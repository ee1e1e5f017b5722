"""What the kernel for Hopper does beside its own instructions: which tile is where, and how a warp
hands over its sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tests.emulation.emulate import EmulationFault, emulate
from tests.emulation.products import EPILOGUE

from opweld.device import pieces

# Each warp holds sums as the tensor core leaves them, of 16 rows of `c`; what is not in `c` is NaN.
GIVE = """
template <int kTileN, bool kScaled, typename Epilogue>
__global__ void give_kernel(op::EpilogueStore<Epilogue> sink, op::RowsAt to, const float* c,
                            const float* scale) {
  __shared__ op::Staging staging;
  constexpr int kPiece = kScaled ? 128 : kTileN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  to.row = 16 * (2 * blockIdx.x + warp);
  for (int column = 0; column < to.n; column += kTileN) {
    op::Sums<kTileN, kPiece> sums;
    for (int piece = 0; piece < sums.kPieces; ++piece)
      for (int i = 0; i < kPiece / 2; ++i) {
        const int row = to.row + lane / 4 + i / 2 % 2 * 8;
        const int at = column + piece * kPiece + i / 4 * 8 + lane % 4 * 2 + i % 2;
        const bool inside = row < to.m && at < to.n;
        sums.value[piece][i] = inside ? c[(to.first_row + row) * to.n + at] : CUDART_NAN_F;
      }
    if (kScaled) op::start_factors<kTileN>(staging.warp[warp], scale + column, to.n - column);
    if (kScaled) op::await_copies<0>();
    op::give_sums<kScaled>(sums, sink, staging.warp[warp], to, column);
  }
}
"""
LAUNCHER = """
extern "C" int give_{lanes}_{columns}_{scaled}(const void* c, const void* scale, int64_t begin,
                                               int64_t m, int64_t n, void* result,
                                               void* times, void* parts, int narrow, int aligned,
                                               void* stream) {{
  const Keep<{lanes}> keep{{static_cast<float*>(result), static_cast<int*>(times)}};
  auto sink = op::EpilogueStore<Keep<{lanes}>>::of(keep, narrow, aligned, begin + m * n);
  sink.parts = static_cast<float*>(parts);
  give_kernel<{columns}, {scaled}><<<(m + 31) / 32, 64>>>(
      sink, op::RowsAt{{n ? begin / n : 0, 0, int(m), int(n)}}, static_cast<const float*>(c),
      static_cast<const float*>(scale));
  return cudaGetLastError();
}}
"""
# The same of an epilogue whose rows are neighbours in memory.
ACROSS = """
struct KeepAcross {
  static constexpr int kLanes = 4;
  static constexpr bool kTakesRows = true;
  static constexpr int kOperands = 2;
  bool across, in_runs;
  int64_t rows, columns;
  float* result;
  int* times;
  template <typename Index>
  __device__ __forceinline__ Index row_at(Index row) const { return row; }
  template <bool packed, int n, typename Index>
  __device__ __forceinline__ void give(Index row, Index column, const float (&values)[n]) const {
    for (int i = 0; i < n; ++i) {
      const int64_t at = (int64_t(column) + i) * rows + row;
      result[at] = values[i];
      times[at] += 1;
    }
  }
  template <int n, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&values)[n]) const {
    give<true>(at / Index(columns), at % Index(columns), values);
  }
};
// Where rows come in runs they begin at a multiple of four; a wrong beginning is told.
template <int n, int kColumns>
__device__ void give_runs(const KeepAcross& keep, uint32_t row, const uint32_t (&columns)[kColumns],
                          const op::Vector<float, n> (&values)[kColumns]) {
  if (!keep.in_runs || row % n != 0) return;
  for (int i = 0; i < kColumns; ++i)
    for (int j = 0; j < n; ++j) keep.give<true>(row + j, columns[i], {values[i].lane[j]});
}
extern "C" int give_across(const void* c, const void* scale, int64_t m, int64_t n, void* result,
                           void* times, int narrow, int runs, void* stream) {
  const KeepAcross keep{true, runs != 0, m, n, static_cast<float*>(result),
                        static_cast<int*>(times)};
  const auto sink = op::EpilogueStore<KeepAcross>::of(keep, narrow, false, m * n);
  give_kernel<128, true><<<(m + 31) / 32, 64>>>(sink, op::RowsAt{0, 0, int(m), int(n)},
                                                static_cast<const float*>(c),
                                                static_cast<const float*>(scale));
  return cudaGetLastError();
}
"""
WHERE = """
__global__ void where_kernel(op::TileGrid grid, const int* index, int* found) {
  const op::TileAt tile(grid, index[blockIdx.x]);
  const int all[6] = {tile.row, tile.column, tile.split, tile.batch, tile.first, tile.last};
  for (int i = 0; i < 6; ++i) found[6 * blockIdx.x + i] = all[i];
}
extern "C" int where(int64_t rows, int64_t columns, int64_t splits, int64_t batches,
                     int64_t intervals, const void* index, int64_t count, void* found,
                     void* stream) {
  where_kernel<<<count, 1>>>(op::TileGrid::of(rows, columns, splits, batches, intervals),
                             static_cast<const int*>(index), static_cast<int*>(found));
  return cudaGetLastError();
}
"""
FORMS = [(lanes, columns, 1) for lanes in (1, 2, 4) for columns in (128, 256)]
FORMS += [(4, 128, 0), (4, 256, 0)]


@cache
def text() -> str:
    launchers = [LAUNCHER.format(lanes=a, columns=b, scaled=c) for a, b, c in FORMS]
    needed = ["give_sums", "start_factors", "TileGrid"]
    return "\n".join([*pieces(needed), EPILOGUE, GIVE, *launchers, ACROSS, WHERE])


def given(
    m: int,
    n: int,
    form: tuple[int, int, int],
    *,
    parts: bool = False,
    narrow: bool = True,
    aligned: bool = True,
    source: str | None = None,
) -> None:
    """Asserts that each value comes out once, times its column's scale, and nothing beside."""
    random, begin = np.random.default_rng(0), 4 * n
    c = random.standard_normal(begin + m * n).astype(np.float32)
    scale = np.exp2(random.integers(-9, 9, n)).astype(np.float32)
    result, times = np.full(begin + m * n, np.nan, np.float32), np.zeros(begin + m * n, np.int32)
    of_parts = np.full(begin + m * n, np.nan, np.float32)
    name = "give_{}_{}_{}".format(*form)
    memory = [result, times, of_parts if parts else None, int(narrow), int(aligned)]
    emulate(source or text(), name, [c, scale, begin, m, n, *memory])
    expected = c[begin:].reshape(m, n) * (scale if form[2] else 1)
    found = of_parts if parts else result
    np.testing.assert_array_equal(found[begin:].reshape(m, n), expected)
    assert np.isnan(found[:begin]).all()
    assert (times[begin:] == (0 if parts else 1)).all()


EXTENTS = [(16, 128), (32, 256), (33, 300), (7, 36), (50, 132), (64, 64), (1, 4)]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_every_value_is_handed_over_once(
    extents: tuple[int, int], form: tuple[int, int, int]
) -> None:
    given(*extents, form)


@pytest.mark.parametrize("n", [1, 31, 127, 130, 257])
def test_rows_of_any_length(n: int) -> None:
    for form in FORMS[:4]:
        given(20, n if form[0] == 1 else n // 2 * 2 + 2, form)
    given(20, n, (4, 128, 1), aligned=False)


@pytest.mark.parametrize("n", [1, 130, 132, 257, 300])
def test_parts_of_sums_have_their_scales(n: int) -> None:
    for form in FORMS:
        given(37, n, form, parts=True)


def test_positions_beyond_32_bits_and_pointers_that_are_not_aligned() -> None:
    for form in FORMS:
        given(37, 132, form, narrow=False)
        given(37, 132, form, aligned=False)


def given_across(
    m: int, n: int, *, narrow: bool = True, runs: bool = False, source: str | None = None
) -> None:
    """Asserts the same of an epilogue whose rows are neighbours."""
    random = np.random.default_rng(0)
    c = random.standard_normal((m, n)).astype(np.float32)
    scale = np.exp2(random.integers(-9, 9, n)).astype(np.float32)
    result, times = np.full((n, m), np.nan, np.float32), np.zeros((n, m), np.int32)
    memory = [result, times, int(narrow), int(runs)]
    emulate(source or text(), "give_across", [c, scale, m, n, *memory])
    np.testing.assert_array_equal(result, (c * scale).T)
    assert (times == 1).all()


@pytest.mark.parametrize("extents", [*EXTENTS, (20, 1), (15, 17), (31, 145), (16, 15)], ids=str)
def test_rows_that_are_neighbours_in_memory(extents: tuple[int, int]) -> None:
    given_across(*extents)
    given_across(*extents, narrow=False)
    given_across(*extents, runs=True)


def where(
    rows: int, columns: int, splits: int, batches: int, intervals: int, indices: np.ndarray
) -> np.ndarray:
    found = np.zeros((len(indices), 6), np.int32)
    arguments = [rows, columns, splits, batches, intervals, indices, len(indices), found]
    emulate(text(), "where", arguments)
    return found


@pytest.mark.parametrize("grid", [(8, 3), (4, 1), (1, 7), (2, 5), (3, 4), (11, 6), (7, 1)], ids=str)
@pytest.mark.parametrize("outer", [(1, 1), (1, 3), (3, 1), (2, 2)], ids=str)
def test_each_tile_is_taken_once(grid: tuple[int, int], outer: tuple[int, int]) -> None:
    (rows, columns), (splits, batches), intervals = grid, outer, 7
    count = rows * columns * splits * batches
    found = where(*grid, *outer, intervals, np.arange(count, dtype=np.int32))
    assert len({tuple(tile[:4]) for tile in found}) == count
    assert (found[:, :4] < [rows, columns, splits, batches]).all() and (found >= 0).all()
    split, first, last = found[:, 2], found[:, 4], found[:, 5]
    np.testing.assert_array_equal(first, intervals * split // splits)
    np.testing.assert_array_equal(last, intervals * (split + 1) // splits)


def test_tiles_of_a_group_follow_each_other() -> None:
    found = where(7, 3, 1, 1, 1, np.arange(21, dtype=np.int32))
    np.testing.assert_array_equal(found[:5, :2], [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)])
    np.testing.assert_array_equal(found[12:16, :2], [(4, 0), (5, 0), (6, 0), (4, 1)])


@pytest.mark.parametrize("grid", [(60000, 30000), (16384, 16383), (3, 500000001)], ids=str)
def test_the_last_of_many_tiles_are_where_they_belong(grid: tuple[int, int]) -> None:
    rows, columns = grid
    random = np.random.default_rng(0)
    index = random.integers(0, rows * columns, 200)
    index[:100] = index[:100] // (4 * columns) * (4 * columns) - random.integers(0, 2, 100)
    index = np.append(np.clip(index, 0, None), rows * columns - 1)
    found = where(*grid, 1, 1, 1, index.astype(np.int32))
    group, rest = index // (4 * columns), index % (4 * columns)
    height = np.minimum(4, rows - 4 * group)
    np.testing.assert_array_equal(found[:, 0], 4 * group + rest % height)
    np.testing.assert_array_equal(found[:, 1], rest // height)


# What may be broken, and m and n at which it shows.
FAULTS = {
    "a slice": (
        "before < columns; before += kColumns",
        "before < 96; before += kColumns",
        (16, 128),
    ),
    "rows that are missing": ("kTogether && rows == 16", "kTogether && rows >= 8", (12, 128)),
    "columns that are missing": ("if (before + own >= columns) continue;", "", (16, 132)),
    "scales of columns": ("(space.factor + before + own)", "(space.factor + own)", (16, 128)),
    "scales that are missing": ("i + lane < columns ? 4 : 0", "4", (16, 132)),
    "rows of passes": (
        "row_at(row + Index(first + i * kLanes))",
        "row_at(row + Index(i))",
        (16, 128),
    ),
    "rows one by one": ("give(row_at(row + Index(i)), i)", "give(row_at(row), i)", (12, 128)),
}
FAULTS_ACROSS = {
    "a row": ("Index(to.row + own)", "Index(to.row + lane / 2)", (16, 128)),
    "rows that are missing": ("own < rows ? min", "own < 16 ? min", (12, 128)),
    "columns that are missing": ("if (first + kEach <= last) {", "if (first < last) {", (16, 132)),
    "columns of a slice": ("before + first);", "first);", (16, 128)),
    "scales of a slice": ("factors = space.factor + before;", "factors = space.factor;", (16, 128)),
    "the last columns": (
        "for (int i = first; i < last; ++i)",
        "for (int i = first; i < first; ++i)",
        (16, 17),
    ),
    "half of a slice": ("lane / 16 * kEach", "lane / 32 * kEach", (16, 128)),
}
FAULTS_OF_RUNS = {
    "rows that are missing": ("own < rows ? min", "own < 16 ? min", (12, 128)),
    "columns that are missing": (
        "if (i + kStep * (kEach - 1) < last) {",
        "if (i < last) {",
        (16, 44),
    ),
    "columns of a slice": ("row, column + before, lane / 4", "row, column, lane / 4", (16, 128)),
    "scales of a slice": ("space.factor[before + i]", "space.factor[i]", (16, 128)),
    "the last columns": (
        "give_columns<1, kStep>(epilogue, row, begin + i, behind);",
        "",
        (16, 17),
    ),
    "the columns of one lane": ("before, lane / 4, last", "before, 0, last", (16, 128)),
    "runs that begin anywhere": ("own = lane % 4 * 4;", "own = lane % 4;", (16, 128)),
    "runs of products that have no whole ones": ("to.m % 4 == 0 && ", "", (18, 36)),
}


def require_shown(
    fault: tuple[str, str, tuple[int, int]], run: Callable[[int, int, str], None]
) -> None:
    sound, broken, extents = fault
    assert sound in text()
    with pytest.raises((EmulationFault, AssertionError)):
        run(*extents, text().replace(sound, broken))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_handing_over_shows(fault: str) -> None:
    require_shown(FAULTS[fault], lambda m, n, source: given(m, n, (4, 128, 1), source=source))


@pytest.mark.parametrize("fault", FAULTS_ACROSS)
def test_a_fault_among_neighbouring_rows_shows(fault: str) -> None:
    require_shown(FAULTS_ACROSS[fault], lambda m, n, source: given_across(m, n, source=source))


@pytest.mark.parametrize("fault", FAULTS_OF_RUNS)
def test_a_fault_among_runs_of_rows_shows(fault: str) -> None:
    def run(m: int, n: int, source: str) -> None:
        given_across(m, n, source=source, runs=True)

    require_shown(FAULTS_OF_RUNS[fault], run)
