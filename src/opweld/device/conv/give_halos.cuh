// Convolutions by halos (halo.cuh): how a warpgroup's sums become results.

namespace op {

// @HaloScales deps:
// What is known of the sums of two blocks of pixels: what they are to be multiplied by, and marks.
struct HaloScales {
    float of_block[2];
    uint32_t marks;
};

// @halo_runs deps: Halos, RowRuns, own_thread
// Where the 16 rows of a warp go that are of this block of a tile.
template <int kWidth>
OPWELD_FN RowRuns halo_runs(const Halos<kWidth>& halos, const TileAt& tile, int block) {
    RowRuns to{{}, {}, int(halos.c.filters)};
#pragma unroll
    for (int run = 0; run < 2; ++run)
        to.count[run] = halos.run_of(tile, block, own_thread() / 32 % 4 * 2 + run, &to.first[run]);
    return to;
}

// @sum_in_float32 deps: laid_out_rows, own_thread, value_in_window
// 64 columns of a warp's 16 rows in float32, from the operands in memory: where halves do not do.
template <int kPitch>
OPWELD_FN void sum_in_float32(float (&rows)[16][kPitch], const Convolution& c, const RowRuns& to,
                              int column) {
    constexpr int kEach = 4;
    const int lane = own_thread() % 32, row = lane % 16;
    const int64_t taps = c.taps(), step = c.channels * taps;
    if (!has_row(to, row)) return;
    const Corner<int64_t> corner(c, row_of<int64_t>(to, row));
#pragma unroll 1
    for (int first = lane / 16 * kEach; first < 64; first += 2 * kEach) {
        float total[kEach] = {};
#pragma unroll 1
        for (int tap = 0; tap < taps; ++tap) {
            float some[kEach] = {};  // long sums lose less in levels
#pragma unroll 1
            for (int64_t channel = 0; channel < c.channels; ++channel) {
                const float value = value_in_window(c, c.kernel, corner, channel, tap);
                const float* const weight = static_cast<const float*>(c.weight) +
                                            (column + first) * step + channel * taps + tap;
#pragma unroll
                for (int i = 0; i < kEach; ++i) {
                    if (column + first + i < to.n) some[i] = fmaf(value, weight[i * step], some[i]);
                }
            }
#pragma unroll
            for (int i = 0; i < kEach; ++i) total[i] += some[i];
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) rows[row][first + i] = total[i];
    }
}

// @give_pair deps: HaloSize, Halos, Sums, give_run, own_thread, sync_threads
// Lays out 32 columns of a warpgroup's sums of two blocks, from register kFirst on, times the
// scales of columns and of blocks. Groups of eight pixels are `of_group` apart, blocks `of_block`.
template <int kFirst, int kCount, int kPitch>
OPWELD_FN void lay_out_pair(const float (&first)[kCount], const float (&second)[kCount],
                            float (&columns)[32][kPitch], const float* scales,
                            const float (&of_blocks)[2], int of_group, int of_block) {
    const int lane = own_thread() % 32, pixel = own_thread() / 32 % 4 * 2 * of_group + lane / 4;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const int column = i / 4 * 8 + lane % 4 * 2 + i % 2, at = pixel + i / 2 % 2 * of_group;
        columns[column][at] = first[kFirst + i] * (scales[column] * of_blocks[0]);
        columns[column][at + of_block] = second[kFirst + i] * (scales[column] * of_blocks[1]);
    }
}
// A warpgroup's sums of two blocks to an epilogue that takes runs of rows: four pixels of a column
// a thread, the same pixels in all columns, so that neighbours of a line are written together.
template <typename T, int kPiece, typename Epilogue>
OPWELD_FN void give_pair(const Sums<T::kTileN, kPiece> (&sums)[2], typename T::Memory& memory,
                         const Halos<T::kWidth>& halos, const TileAt& tile, const float* scales,
                         const float (&of_blocks)[2], const Epilogue& epilogue) {
    constexpr int kEach = 4, kPixels = 2 * HaloShape::kBlock, kQuads = kPixels / kEach;
    const int group_of_tile = own_thread() / 128, thread = own_thread() % 128;
    auto& columns = memory.space[group_of_tile].columns;
    const bool is_line = halos.shape.group[2] > 0;
    const int of_group = is_line ? 8 : 16, of_block = is_line ? HaloShape::kBlock : 8;
    const int pixel = thread % kQuads * kEach;
    const int block = is_line ? pixel / HaloShape::kBlock : pixel / 8 % 2;
    const int group = is_line ? pixel % HaloShape::kBlock / 8 : pixel / 16;
    int64_t begin;
    const int count = halos.run_of(tile, group_of_tile * 2 + block, group, &begin) - pixel % 8;
    const auto row = uint32_t(begin) + pixel % 8;
    const bool whole = count >= kEach && row % kEach == 0;
    const auto starts = epilogue.row_at(whole ? row : uint32_t(0));
#pragma unroll 1
    for (int part = 0; part < T::kTileN / 32; ++part) {
        const int column = tile.column * T::kTileN + part * 32;
        const auto lay_out = [&](auto first) {
            lay_out_pair<decltype(first)::value * 16>(sums[0].value[0], sums[1].value[0], columns,
                                                      scales + part * 32, of_blocks, of_group,
                                                      of_block);
        };
        sync_threads<128>(2 + group_of_tile);  // what was there has been read
        if (part == 0) lay_out(std::integral_constant<int, 0>());
        else if (part == 1) lay_out(std::integral_constant<int, 1>());
        else if (part == 2) lay_out(std::integral_constant<int, T::kTileN == 64 ? 0 : 2>());
        else lay_out(std::integral_constant<int, T::kTileN == 64 ? 0 : 3>());
        sync_threads<128>(2 + group_of_tile);
        const int left = min(int(halos.c.filters) - column, 32);
        if (whole) {
#pragma unroll(T::kResident == 1 ? 8 : 4)
            for (int i = thread / kQuads; i < 32; i += 128 / kQuads) {
                if (i >= left) break;
                give_run(epilogue, starts, uint32_t(column + i),
                         load_vector<kEach>(&columns[i][pixel]).lane);
            }
            continue;
        }
        for (int j = 0; j < min(count, kEach); ++j) {
            const auto own = epilogue.row_at(row + j);
            for (int i = thread / kQuads; i < left; i += 128 / kQuads) {
                const float value[1] = {columns[i][pixel + j]};
                epilogue.template give<false>(own, uint32_t(column + i), value);
            }
        }
    }
}

// @give_halos deps: Drowned, HaloScales, Sums, give_laid_out, give_pair, halo_runs, pack_values, sum_in_float32
// Lays out 64 columns of a warp's sums, from register kFirst on, times the scales of columns and
// `by`.
template <int kFirst, int kCount, int kPitch>
OPWELD_FN void lay_out_scaled(const float (&sums)[kCount], float (&rows)[16][kPitch],
                              const float* scales, float by) {
    const int lane = own_thread() % 32;
    __syncwarp();  // what was there has been read
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        const int column = i / 4 * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(&rows[lane / 4 + i / 2 % 2 * 8][column]) =
            make_float2(sums[kFirst + i] * (scales[column] * by),
                        sums[kFirst + i + 1] * (scales[column + 1] * by));
    }
    __syncwarp();
}
// Where halos or filters are marked: whether 64 laid out columns of sums are so small that digits
// are missing, of values that were multiplied by 1 / `largest`.
template <int kPitch>
OPWELD_FN bool are_cancelled(const float (&rows)[16][kPitch], const float* scales, float largest) {
    Drowned<1> cancelled;
    const int lane = own_thread() % 32;
    for (int i = 0; i < 2; ++i) {
        const float most = scales[lane * 2 + i] * largest;
        for (int row = 0; row < 16; ++row) cancelled.add(rows[row][lane * 2 + i], most);
    }
    return cancelled.are_many();
}

// A warpgroup's sums to the epilogue, where it takes no runs 64 columns of a block of pixels at a
// time. `scales`: of the tile's columns.
template <typename T, int kPiece, typename Epilogue>
OPWELD_FN void give_halos(const Sums<T::kTileN, kPiece> (&sums)[2], typename T::Memory& memory,
                          const Halos<T::kWidth>& halos, const TileAt& tile, const float* scales,
                          const HaloScales& known, const EpilogueStore<Epilogue>& sink) {
    if constexpr (takes_rows<Epilogue>) {
        if (halos.in_runs && known.marks == 0) {
            give_pair<T>(sums, memory, halos, tile, scales, known.of_block, sink.epilogue);
            return;
        }
    }
    constexpr int kBehind = T::kTileN / 2 - 32;
    auto& rows = memory.space[own_thread() / 128].rows[own_thread() / 32 % 4];
#pragma unroll 1
    for (int part = 0; part < T::kTileN / 32; ++part) {
        const int block = own_thread() / 128 * 2 + part % 2;
        const int column = tile.column * T::kTileN + part / 2 * 64;
        const float* const own = scales + part / 2 * 64;
        const float back = part % 2 ? known.of_block[1] : known.of_block[0];
        if (part == 0) lay_out_scaled<0>(sums[0].value[0], rows, own, back);
        else if (part == 1) lay_out_scaled<0>(sums[1].value[0], rows, own, back);
        else if (part == 2) lay_out_scaled<kBehind>(sums[0].value[0], rows, own, back);
        else lay_out_scaled<kBehind>(sums[1].value[0], rows, own, back);
        const RowRuns to = halo_runs(halos, tile, block);
        if (known.marks != 0) {
            if (known.marks == kDoesNotFit || are_cancelled(rows, own, back)) {
                __syncwarp();
                sum_in_float32(rows, halos.c, to, column);
                __syncwarp();
            }
        }
        give_laid_out(rows, sink, to, column);
    }
}

}  // namespace op
