// How a warp's sums of a convolution become results: it lays out 64 columns of 16 rows in shared
// memory, and hands them to the epilogue as neighbours in memory.

namespace op {

// @laid_out_rows deps: RowsAt
// Row i of a warp's 16 in the result, and whether it exists.
template <typename Index>
OPWELD_FN Index row_of(const RowsAt& to, int i) {
    return Index(to.first_row) + Index(to.row + i);
}
[[maybe_unused]] OPWELD_FN int count_of(const RowsAt& to) { return to.m - to.row; }
[[maybe_unused]] OPWELD_FN bool has_row(const RowsAt& to, int i) { return i < count_of(to); }
[[maybe_unused]] OPWELD_FN bool has_all_rows(const RowsAt& to) { return count_of(to) >= 16; }

// @give_laid_out deps: EpilogueStore, give_columns, laid_out_rows, load_vector, own_thread, takes_rows, takes_runs
// A warp's part of a tile to `put(rows, column, values)`, from where it lies in shared memory: 4
// columns of 4 rows at once, by half of the lanes those of one row. `row` is what `row_at` says of
// one, once for all, and `of_lane` what another lane found. There are all rows, and whole fours of
// columns. No branch stands between the two calls: what they read of columns alone is read once,
// and the second one's rows are on their way while the first computes.
template <typename Index, int kPitch, typename Rows, typename RowAt, typename OfLane, typename Put>
OPWELD_FN void give_along_rows(const float (&rows)[16][kPitch], const Rows& to, int column,
                               const RowAt& row_at, const OfLane& of_lane, const Put& put) {
    const int lane = own_thread() % 32, first = lane % 16 * 4;
    const auto own = row_at(row_of<Index>(to, lane % 16));
    decltype(row_at(Index())) at[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) at[i / 4][i % 4] = of_lane(own, lane / 16 + 2 * i);
    if (column + first >= to.n) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const auto values = [&](int j) {
            return load_vector<4>(&rows[lane / 16 + 8 * half + 2 * j][first]);
        };
        put(at[half], Index(column + first), values);
    }
}
// A warp's part of a tile to `put(row, column, values)`, by lanes that have a row each, so that
// neighbours are those of one column; with kWhole of eight columns there are all or none. What is
// read for kTurns times 4 columns is under way together.
template <bool kWhole, int kTurns, typename Index, int kPitch, typename Rows, typename RowAt,
          typename Put>
OPWELD_FN void give_across_rows(const float (&rows)[16][kPitch], const Rows& to, int column,
                                const RowAt& row_at, const Put& put) {
    const int lane = own_thread() % 32, row = lane % 16, columns = min(to.n - column, 64);
    if (!has_row(to, row)) return;
    const auto at = row_at(row_of<Index>(to, row));
#pragma unroll(kTurns)
    for (int first = lane / 16 * 4; first < columns; first += 8) {
        const auto staged = load_vector<4>(&rows[row][first]);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float value[1] = {staged.lane[j]};
            if (kWhole || first + j < columns) put(at, Index(column + first + j), value);
        }
    }
}
// A warp's part of a tile to an epilogue for which four neighbouring rows are one run in memory.
template <int kPitch, typename Rows, typename Epilogue>
OPWELD_FN void give_runs_of_rows(const float (&rows)[16][kPitch], const Rows& to, int column,
                                 const Epilogue& epilogue) {
    const int lane = own_thread() % 32, own = lane % 4 * 4, columns = min(to.n - column, 64);
    const auto row = epilogue.row_at(row_of<uint32_t>(to, own));
    give_columns_until<8>(epilogue, row, column, lane / 4, columns, [&](int i) {
        Vector<float, 4> values;
#pragma unroll
        for (int j = 0; j < 4; ++j) values.lane[j] = rows[own + j][i];
        return values;
    });
}
// A warp's part of a tile to the parts of sums.
template <int kPitch, typename Rows>
OPWELD_FN void give_parts(const float (&rows)[16][kPitch], const Rows& to, int column,
                          float* parts) {
    const int columns = min(to.n - column, 64);
    for (int i = own_thread() % 32; i < 16 * 64; i += 32) {
        if (has_row(to, i / 64) && i % 64 < columns)
            __stcg(parts + row_of<int64_t>(to, i / 64) * to.n + column + i % 64,
                   rows[i / 64][i % 64]);
    }
}
// Lays out 64 columns of what a warp has summed, from register kFirst on.
template <int kFirst, int kCount, int kPitch>
OPWELD_FN void lay_out(const float (&sums)[kCount], float (&rows)[16][kPitch]) {
    const int lane = own_thread() % 32;
    __syncwarp();  // what was there has been read
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        *reinterpret_cast<float2*>(&rows[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2]) =
            make_float2(sums[kFirst + i], sums[kFirst + i + 1]);
    }
    __syncwarp();
}
// As many as there are registers for: what takes more than a bias goes turn by turn.
template <typename Epilogue, bool kKnown = takes_rows<Epilogue>>
constexpr int kTurnsTogether = 1;
template <typename Epilogue>
constexpr int kTurnsTogether<Epilogue, true> = Epilogue::kOperands > 3 ? 1 : 4;
// What is laid out to the epilogue, or to the parts of sums.
template <int kPitch, typename Rows, typename Epilogue>
OPWELD_FN void give_laid_out(const float (&rows)[16][kPitch], const EpilogueStore<Epilogue>& sink,
                             const Rows& to, int column) {
    const auto row_at = [&](auto row) {
        if constexpr (takes_rows<Epilogue>) return sink.epilogue.row_at(row);
        else return row * decltype(row)(to.n);
    };
    const auto of_lane = [&](const auto& row, int lane) {
        if constexpr (takes_rows<Epilogue>) return sink.epilogue.of_lane(row, lane);
        else return __shfl_sync(~0u, row, lane);
    };
    const auto put = [&](const auto& row, auto at, const auto& values) {
        if constexpr (takes_rows<Epilogue>) sink.epilogue.template give<true>(row, at, values);
        else sink.epilogue(row + at, values);
    };
    const auto put_rows = [&](const auto& rows, auto at, const auto& values) {
        if constexpr (takes_rows<Epilogue>) sink.epilogue.template give_rows<4>(rows, at, values);
        else
            for (int i = 0; i < 4; ++i) put(rows[i], at, values(i).lane);
    };
    if constexpr (takes_runs<Epilogue>) {
        const bool whole = has_all_rows(to) && row_of<int64_t>(to, 0) % 4 == 0;
        if (!sink.parts && sink.narrow && sink.epilogue.in_runs && whole) {
            give_runs_of_rows(rows, to, column, sink.epilogue);
            return;
        }
    }
    if (sink.parts) {
        give_parts(rows, to, column, sink.parts);
    } else if (!sink.narrow || to.n % 8 != 0) {
        give_across_rows<false, 1, uint64_t>(rows, to, column, row_at, put);
    } else {
        if constexpr (Epilogue::kLanes == 4) {
            if (sink.paired && has_all_rows(to)) {
                give_along_rows<uint32_t>(rows, to, column, row_at, of_lane, put_rows);
                return;
            }
        }
        constexpr int kTurns = kTurnsTogether<Epilogue>;
        give_across_rows<true, kTurns, uint32_t>(rows, to, column, row_at, put);
    }
}

}  // namespace op
