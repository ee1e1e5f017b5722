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
// Whether an epilogue is told rows and columns, besides flat positions: what it says of a row once
// (`row_at`), and values of some columns of it (`give`).
template <typename Epilogue, typename = void>
constexpr bool takes_rows = false;
template <typename Epilogue>
constexpr bool takes_rows<Epilogue, std::void_t<decltype(Epilogue::kTakesRows)>> = true;

// @give_slices deps: RowsAt, Staging, load_vector, own_thread, stage_values
// A warp's part of a tile, slice by slice: staged values, times the scales of their columns, to
// `put(row, column, values)`, kLanes at once; `row` is what `row_at` says of one. Where all rows
// are there and kTogether, passes over a slice follow each other without a branch, what they are
// told of their rows is found once for all slices, and their reads are under way together. Warps
// without rows come along: a branch around this would serialise the wgmma of the next tile.
template <int kLanes, bool kTogether, bool kScaled, typename Index, int kTileN, int kPiece,
          typename RowAt, typename Put>
OPWELD_FN void give_slices(const Sums<kTileN, kPiece>& sums, Staging::OfWarp& space,
                           const RowsAt& to, int column, const RowAt& row_at, const Put& put) {
    constexpr int kColumns = Staging::kColumns, kAcross = kColumns / kLanes, kPasses = 16 / kLanes;
    const int rows = min(to.m - to.row, 16), columns = min(to.n - column, kTileN);
    const int lane = own_thread() % 32, first = lane / kAcross, own = lane % kAcross * kLanes;
    const Index row = Index(to.first_row) + Index(to.row);
    decltype(row_at(row)) of_pass[kTogether ? kPasses : 1];
    if constexpr (kTogether) {
#pragma unroll
        for (int i = 0; i < kPasses; ++i) of_pass[i] = row_at(row + Index(first + i * kLanes));
    }
#pragma unroll 1
    for (int before = 0; before < columns; before += kColumns) {
        __syncwarp();
        stage_values<0>(before / kColumns, sums, space.value, lane);
        __syncwarp();
        if (before + own >= columns) continue;
        const auto factor = load_vector<kLanes>(space.factor + before + own);
        const auto give = [&](const auto& to_row, int i) {
            const auto staged = load_vector<kLanes>(&space.value[i][own]);
            float values[kLanes];
#pragma unroll
            for (int j = 0; j < kLanes; ++j) {
                values[j] = kScaled ? staged.lane[j] * factor.lane[j] : staged.lane[j];
            }
            put(to_row, Index(column + before + own), values);
        };
        if (kTogether && rows == 16) {
#pragma unroll
            for (int i = 0; i < kPasses; ++i) give(of_pass[kTogether ? i : 0], first + i * kLanes);
        } else {
#pragma unroll 1
            for (int i = first; i < rows; i += kLanes) give(row_at(row + Index(i)), i);
        }
    }
}

// @give_across deps: RowsAt, Staging, load_vector, own_thread, stage_values
// A warp's part of a tile, slice by slice, to an epilogue whose rows lie nearer in memory than its
// columns: lanes are neighbouring rows, of which each looks up its own once, and take half of a
// slice's columns at once, as values apart, so that the reads of all of them are under way
// together.
template <bool kScaled, typename Index, int kTileN, int kPiece, typename Epilogue>
OPWELD_FN void give_across(const Sums<kTileN, kPiece>& sums, Staging::OfWarp& space,
                           const RowsAt& to, int column, const Epilogue& epilogue) {
    constexpr int kColumns = Staging::kColumns, kEach = kColumns / 2;
    const int rows = min(to.m - to.row, 16), columns = min(to.n - column, kTileN);
    const int lane = own_thread() % 32, own = lane % 16;
    const auto row = epilogue.row_at(Index(to.first_row) + Index(to.row + own));
    const auto give = [&](auto count, const float* staged, const float* factors, int at) {
        constexpr int n = decltype(count)::value, kLoad = n < 4 ? n : 4;
        float values[n];
#pragma unroll
        for (int i = 0; i < n; i += kLoad) {
            const auto value = load_vector<kLoad>(staged + i);
            const auto factor = load_vector<kLoad>(factors + i);
#pragma unroll
            for (int j = 0; j < kLoad; ++j) {
                values[i + j] = kScaled ? value.lane[j] * factor.lane[j] : value.lane[j];
            }
        }
        epilogue.template give<false>(row, Index(column + at), values);
    };
#pragma unroll 1
    for (int before = 0; before < columns; before += kColumns) {
        __syncwarp();
        stage_values<0>(before / kColumns, sums, space.value, lane);
        __syncwarp();
        const int first = lane / 16 * kEach,
                  last = own < rows ? min(columns - before, kColumns) : 0;
        const float* const staged = &space.value[own][0];
        const float* const factors = space.factor + before;
        if (first + kEach <= last) {
            give(std::integral_constant<int, kEach>(), staged + first, factors + first,
                 before + first);
        } else {
#pragma unroll 1
            for (int i = first; i < last; ++i) {
                give(std::integral_constant<int, 1>(), staged + i, factors + i, before + i);
            }
        }
    }
}

// @takes_runs deps: takes_rows
// Whether neighbours in memory may be those of different rows, and whether an epilogue may then
// take four of a column as one.
template <typename Epilogue, typename = void>
constexpr bool may_be_across = takes_rows<Epilogue>;
template <typename Epilogue>
constexpr bool may_be_across<Epilogue, std::void_t<decltype(Epilogue::kMayBeAcross)>> =
    Epilogue::kMayBeAcross;
template <typename Epilogue, typename = void>
constexpr bool takes_runs = false;
template <typename Epilogue>
constexpr bool takes_runs<Epilogue, std::void_t<decltype(std::declval<Epilogue>().in_runs)>> =
    may_be_across<Epilogue>;

// @give_columns deps: Vector, give_runs
// Four rows, neighbours in memory, of columns from `first` on, each kStep behind the one before:
// `value(i)` are those of the column that is i behind the first.
template <int kColumns, int kStep, typename Epilogue, typename Row, typename Value>
OPWELD_FN void give_columns(const Epilogue& epilogue, const Row& row, int first,
                            const Value& value) {
    uint32_t columns[kColumns];
    Vector<float, 4> values[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
        columns[i] = uint32_t(first + i * kStep);
        values[i] = value(i * kStep);
    }
    give_runs(epilogue, row, columns, values);
}
// Those before `last`, of `begin` and on, as many together as there are registers for.
template <int kStep, typename Epilogue, typename Row, typename Value>
OPWELD_FN void give_columns_until(const Epilogue& epilogue, const Row& row, int begin, int first,
                                  int last, const Value& value) {
    constexpr int kEach = Epilogue::kOperands > 3 ? 2 : 4;
#pragma unroll 1
    for (int i = first; i < last;) {
        const auto behind = [&](int more) { return value(i + more); };
        if (i + kStep * (kEach - 1) < last) {
            give_columns<kEach, kStep>(epilogue, row, begin + i, behind);
            i += kStep * kEach;
        } else {
            give_columns<1, kStep>(epilogue, row, begin + i, behind);
            i += kStep;
        }
    }
}

// @give_runs_across deps: RowsAt, Staging, give_columns, own_thread, stage_values
// A warp's part of a tile, slice by slice, to an epilogue that takes runs of rows: lanes have four
// rows each.
template <bool kScaled, int kTileN, int kPiece, typename Epilogue>
OPWELD_FN void give_runs_across(const Sums<kTileN, kPiece>& sums, Staging::OfWarp& space,
                                const RowsAt& to, int column, const Epilogue& epilogue) {
    const int columns = min(to.n - column, kTileN), rows = to.m - to.row;
    const int lane = own_thread() % 32, own = lane % 4 * 4;
    const auto row = epilogue.row_at(uint32_t(to.first_row) + uint32_t(to.row + own));
#pragma unroll 1
    for (int before = 0; before < columns; before += Staging::kColumns) {
        __syncwarp();
        stage_values<0>(before / Staging::kColumns, sums, space.value, lane);
        __syncwarp();
        const int last = own < rows ? min(columns - before, Staging::kColumns) : 0;
        give_columns_until<8>(epilogue, row, column + before, lane / 4, last, [&](int i) {
            const float factor = kScaled ? space.factor[before + i] : 1.0f;
            Vector<float, 4> values;
#pragma unroll
            for (int j = 0; j < 4; ++j) values.lane[j] = space.value[own + j][i] * factor;
            return values;
        });
    }
}

// @give_sums deps: EpilogueStore, give_across, give_runs_across, give_slices, takes_rows, takes_runs
// A warp's part of a tile to the epilogue, whose code stands here for each way of calling it,
// kLanes at once or one; or to the parts of sums.
template <bool kScaled, int kTileN, typename Epilogue, int kPiece>
OPWELD_FN void give_sums(const Sums<kTileN, kPiece>& sums, const EpilogueStore<Epilogue>& sink,
                         Staging::OfWarp& space, const RowsAt& to, int column) {
    constexpr int kLanes = Epilogue::kLanes;
    constexpr bool kTogether = kTileN <= 128;  // there are registers for it
    float* const parts = sink.parts;
    const auto flat = [&](auto row) { return row * decltype(row)(to.n); };
    const auto row_at = [&](auto row) {
        if constexpr (takes_rows<Epilogue>) return sink.epilogue.row_at(row);
        else return flat(row);
    };
    const auto to_epilogue = [&](const auto& row, auto from, const auto& values) {
        if constexpr (takes_rows<Epilogue>) {
            sink.epilogue.template give<true>(row, from, values);
        } else {
            sink.epilogue(row + from, values);
        }
    };
    if (parts && to.n % 4 == 0) {
        const auto to_parts = [=](int64_t row, int64_t from, const float(&values)[4]) {
            __stcg(reinterpret_cast<float4*>(parts + row + from),
                   make_float4(values[0], values[1], values[2], values[3]));
        };
        give_slices<4, kTogether, kScaled, int64_t>(sums, space, to, column, flat, to_parts);
    } else if (parts) {
        const auto to_parts = [=](int64_t row, int64_t from, const float(&values)[1]) {
            parts[row + from] = values[0];
        };
        give_slices<1, false, kScaled, int64_t>(sums, space, to, column, flat, to_parts);
    } else if (sink.paired && sink.narrow && to.n % kLanes == 0) {
        give_slices<kLanes, kTogether, kScaled, uint32_t>(sums, space, to, column, row_at,
                                                          to_epilogue);
    } else {
        if constexpr (may_be_across<Epilogue>) {
            if (sink.epilogue.across && sink.narrow) {
                if constexpr (takes_runs<Epilogue>) {
                    const bool whole = to.m % 4 == 0 && (to.first_row + to.row) % 4 == 0;
                    if (sink.epilogue.in_runs && whole) {
                        give_runs_across<kScaled>(sums, space, to, column, sink.epilogue);
                        return;
                    }
                }
                give_across<kScaled, uint32_t>(sums, space, to, column, sink.epilogue);
                return;
            }
        }
        give_slices<1, false, kScaled, uint64_t>(sums, space, to, column, row_at, to_epilogue);
    }
}

}  // namespace op
