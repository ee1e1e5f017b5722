// Products on Hopper's tensor cores: how sums become results. A warp lays them out in shared
// memory, a slice at a time, and hands them to the epilogue as neighbours in memory.

namespace op {

// @stage_values deps: Staging, Sums
// Columns 32 `slice` and on of a warp's sums; a register has no index at run time, so each slice
// has code of its own.
template <int kSlice, int kTileN, int kPiece>
OPWELD_FN void stage_slice(const Sums<kTileN, kPiece>& sums, float (&rows)[16][Staging::kPitch],
                           int lane) {
    const int row = lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
        constexpr int kPiecesBefore = kSlice * 32 / kPiece;
        const int from = kSlice * 32 % kPiece / 2 + i;
        const float* pair = &sums.value[kPiecesBefore][from];
        *reinterpret_cast<float2*>(&rows[row + i / 2 % 2 * 8][column + i / 4 * 8]) =
            make_float2(pair[0], pair[1]);
    }
}

template <int kSlice, int kTileN, int kPiece>
OPWELD_FN void stage_values(int slice, const Sums<kTileN, kPiece>& sums,
                            float (&rows)[16][Staging::kPitch], int lane) {
    if constexpr (kSlice * 32 < kTileN) {
        if (slice == kSlice) {
            stage_slice<kSlice>(sums, rows, lane);
        } else {
            stage_values<kSlice + 1>(slice, sums, rows, lane);
        }
    }
}

// @RowsAt deps:
// Where the values of a warp's rows go: the first of them, of n columns, is row `row` of `m` of a
// product before which there are `first_row` rows of others.
struct RowsAt {
    int64_t first_row;
    int row, m, n;
};

// @takes_rows deps:
// Whether an epilogue is told rows and columns, besides flat positions.
template <typename Epilogue, typename = void>
constexpr bool takes_rows = false;
template <typename Epilogue>
constexpr bool takes_rows<Epilogue, std::void_t<decltype(Epilogue::kTakesRows)>> = true;

// @give_slices deps: RowsAt, Staging, load_vector, own_thread, stage_values
// Up to 16 rows and 32 columns of staged values, times the scales of their columns, to
// `put(position, row, column, values)`, kLanes at once. `at` is the flat position of the first,
// which is in `row` and `begin`, `pitch` from row to row. Where all rows are there kTogether passes
// follow each other without a branch, as many as there are registers for.
template <int kLanes, int kTogether, bool kScaled, typename Index, typename Put>
OPWELD_FN void give_slice(const Staging::OfWarp& space, int lane, int slice, int rows, int columns,
                          Index at, Index row, Index begin, Index pitch, const Put& put) {
    constexpr int kAcross = Staging::kColumns / kLanes;
    const int column = lane % kAcross * kLanes, first = lane / kAcross;
    if (column >= columns) return;
    const auto factor = load_vector<kLanes>(space.factor + slice * Staging::kColumns + column);
    const auto give = [&](int i, Index place) {
        const auto staged = load_vector<kLanes>(&space.value[i][column]);
        float values[kLanes];
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
            values[j] = kScaled ? staged.lane[j] * factor.lane[j] : staged.lane[j];
        }
        put(place, row + Index(i), begin + Index(column), values);
    };
    at += Index(first) * pitch + Index(column);
    if (kTogether > 1 && rows == 16) {
#pragma unroll kTogether
        for (int i = 0; i < 16; i += kLanes, at += kLanes * pitch) give(first + i, at);
    } else {
#pragma unroll 1
        for (int i = first; i < rows; i += kLanes, at += kLanes * pitch) give(i, at);
    }
}

// The same where rows lie nearer in memory than columns: lanes are neighbouring rows, and take some
// columns of theirs at once, as values apart; the last ones one by one.
template <bool kScaled, typename Index, typename Put>
OPWELD_FN void give_slice_across(const Staging::OfWarp& space, int lane, int slice, int rows,
                                 int columns, Index at, Index row, Index begin, Index pitch,
                                 const Put& put) {
    constexpr int kEach = 4;
    const int own = lane % 16;
    if (own >= rows) return;
    const float* const factors = space.factor + slice * Staging::kColumns;
    at += Index(own) * pitch, row += Index(own);
#pragma unroll 1
    for (int first = lane / 16 * kEach; first < columns; first += 2 * kEach) {
        const auto staged = load_vector<kEach>(&space.value[own][first]);
        const auto factor = load_vector<kEach>(factors + first);
        float values[kEach];
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
            values[j] = kScaled ? staged.lane[j] * factor.lane[j] : staged.lane[j];
        }
        const Index column = begin + Index(first);
        if (first + kEach <= columns) {
            put(at + Index(first), row, column, values);
        } else {
#pragma unroll
            for (int j = 0; j < kEach; ++j) {
                const float value[1] = {values[j]};
                if (first + j < columns) put(at + Index(first + j), row, column + Index(j), value);
            }
        }
    }
}

// A warp's part of a tile, slice by slice, to `put`: 16 rows, kTileN columns from `column` on.
// Warps without rows come along: a branch around this would serialise the wgmma of the next tile.
template <int kLanes, int kTogether, bool kScaled, typename Index, bool kAcross = false, int kTileN,
          int kPiece, typename Put>
OPWELD_FN void give_slices(const Sums<kTileN, kPiece>& sums, Staging::OfWarp& space,
                           const RowsAt& to, int column, const Put& put) {
    const int rows = min(to.m - to.row, 16), columns = min(to.n - column, kTileN);
    const Index pitch = Index(to.n), row = Index(to.first_row) + Index(to.row);
    const int lane = own_thread() % 32;
    Index at = row * pitch + Index(column);
#pragma unroll 1
    for (int slice = 0; slice * Staging::kColumns < columns; ++slice, at += Staging::kColumns) {
        const int before = slice * Staging::kColumns;
        __syncwarp();
        stage_values<0>(slice, sums, space.value, lane);
        __syncwarp();
        const int left = min(columns - before, Staging::kColumns);
        const Index begin = Index(column + before);
        if constexpr (kAcross) {
            give_slice_across<kScaled>(space, lane, slice, rows, left, at, row, begin, pitch, put);
        } else {
            give_slice<kLanes, kTogether, kScaled>(space, lane, slice, rows, left, at, row, begin,
                                                   pitch, put);
        }
    }
}

// @give_sums deps: EpilogueStore, give_slices, takes_rows
// A warp's part of a tile to the epilogue, whose code stands here for each way of calling it,
// kLanes at once or one; or to the parts of sums.
template <bool kScaled, int kTileN, typename Epilogue, int kPiece>
OPWELD_FN void give_sums(const Sums<kTileN, kPiece>& sums, const EpilogueStore<Epilogue>& sink,
                         Staging::OfWarp& space, const RowsAt& to, int column) {
    constexpr int kLanes = Epilogue::kLanes, kTogether = kTileN > 128 ? 1 : 4;
    float* const parts = sink.parts;
    const auto to_epilogue = [&](auto at, auto row, auto from, const auto& values) {
        if constexpr (takes_rows<Epilogue>) {
            sink.epilogue.template give<true>(row, from, values);
        } else {
            sink.epilogue(at, values);
        }
    };
    if (parts && to.n % 4 == 0) {
        const auto to_parts = [=](int64_t at, int64_t, int64_t, const float(&values)[4]) {
            __stcg(reinterpret_cast<float4*>(parts + at),
                   make_float4(values[0], values[1], values[2], values[3]));
        };
        give_slices<4, kTogether, kScaled, int64_t>(sums, space, to, column, to_parts);
    } else if (parts) {
        const auto to_parts = [=](int64_t at, int64_t, int64_t, const float(&values)[1]) {
            parts[at] = values[0];
        };
        give_slices<1, 1, kScaled, int64_t>(sums, space, to, column, to_parts);
    } else if (sink.paired && sink.narrow && to.n % kLanes == 0) {
        give_slices<kLanes, kTogether, kScaled, uint32_t>(sums, space, to, column, to_epilogue);
    } else {
        if constexpr (takes_rows<Epilogue>) {
            if (sink.epilogue.across && sink.narrow) {
                const auto apart = [&](auto, auto row, auto from, const auto& values) {
                    sink.epilogue.template give<false>(row, from, values);
                };
                give_slices<1, 1, kScaled, uint32_t, true>(sums, space, to, column, apart);
                return;
            }
        }
        give_slices<1, 1, kScaled, uint64_t>(sums, space, to, column, to_epilogue);
    }
}

}  // namespace op
