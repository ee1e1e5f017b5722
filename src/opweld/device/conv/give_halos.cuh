// Convolutions by halos (halo.cuh): how a warp's sums become results. It lays out 16 filters of 64
// pixels in shared memory, and hands them to the epilogue as neighbours in memory.

namespace op {

// @HaloScales deps:
// What is known of sums: what they are to be multiplied by, of a block of pixels and of this lane's
// two filters, and marks.
struct HaloScales {
    float of_block[2], of_filter[2];
    uint32_t marks;
};

// @HaloSubtile deps: HaloSize, Halos, TileGrid, own_thread
// 64 of a tile's 256 output pixels, and 16 filters from `column` on: half of a block or, where
// blocks are paired, a quarter of both, whose groups of eight pixels are neighbours in turns.
template <typename T>
struct HaloSubtile {
    static constexpr int kOfGroup = T::kPaired ? 16 : 8;  // from eight pixels to the next
    const Halos<T::kWidth>& halos;
    const TileAt& tile;
    int part, column;

    __device__ __forceinline__ static int block_of(int part, int pixel) {
        return T::kPaired ? pixel / 8 % 2 : part / 2;
    }
    // Which eight pixels of its block these are.
    __device__ __forceinline__ static int group_of(int part, int pixel) {
        return (T::kPaired ? part * 4 : part % 2 * 8) + pixel / kOfGroup;
    }
    // How many pixels there are from this one on of its group, and the first of them among all.
    __device__ __forceinline__ int run_from(int pixel, int64_t* row) const {
        const int group = group_of(part, pixel);
        const int count = halos.run_of(tile, block_of(part, pixel), group, row) - pixel % 8;
        *row += pixel % 8;
        return count;
    }
    __device__ __forceinline__ int filters() const {
        return min(int(halos.c.filters) - column, 16);
    }
    // Calls `give(pixel, row)` for each pixel that there is, by the lanes of a warp.
    template <typename Give>
    __device__ __forceinline__ void of_each(const Give& give) const {
#pragma unroll 1
        for (int pixel = own_thread() % 32; pixel < 64; pixel += 32) {
            int64_t row;
            if (run_from(pixel, &row) > 0) give(pixel, row);
        }
    }
};

// @lay_out_pixels deps: HaloSubtile
// Lays out subtile kPart of a warp's 16 filters, times the scales of this lane's two filters by
// block.
template <typename T, int kPart, int kPitch>
OPWELD_FN void lay_out_pixels(const float (&sums)[2][64], float (&values)[16][kPitch],
                              const float (&upper)[2], const float (&lower)[2]) {
    using Subtile = HaloSubtile<T>;
    const int lane = own_thread() % 32;
    __syncwarp();  // what was there has been read
#pragma unroll
    for (int pixel = 0; pixel < 64; pixel += 8) {
        const int block = Subtile::block_of(kPart, pixel);
        const float* const own = &sums[block][Subtile::group_of(kPart, pixel) * 4];
        float* const to = &values[lane / 4][pixel + lane % 4 * 2];
        *reinterpret_cast<float2*>(to) = make_float2(own[0] * upper[block], own[1] * upper[block]);
        *reinterpret_cast<float2*>(to + 8 * kPitch) =
            make_float2(own[2] * lower[block], own[3] * lower[block]);
    }
    __syncwarp();
}

// @sum_in_float32 deps: HaloSubtile, value_in_window
// A subtile in float32, from the operands in memory: where halves do not do.
template <typename T, int kPitch>
OPWELD_FN void sum_in_float32(float (&values)[16][kPitch], const HaloSubtile<T>& subtile) {
    constexpr int kEach = 4;
    const Convolution& c = subtile.halos.c;
    const int64_t taps = c.taps(), step = c.channels * taps;
    const int filters = subtile.filters();
    __syncwarp();
    subtile.of_each([&](int pixel, int64_t row) {
        const Corner<int64_t> corner(c, row);
#pragma unroll 1
        for (int first = 0; first < filters; first += kEach) {
            float total[kEach] = {};
#pragma unroll 1
            for (int tap = 0; tap < taps; ++tap) {
                float some[kEach] = {};  // long sums lose less in levels
#pragma unroll 1
                for (int64_t channel = 0; channel < c.channels; ++channel) {
                    const float value = value_in_window(c, c.kernel, corner, channel, tap);
                    const float* const weight = static_cast<const float*>(c.weight) +
                                                (subtile.column + first) * step + channel * taps +
                                                tap;
#pragma unroll
                    for (int i = 0; i < kEach; ++i) {
                        if (first + i < filters) some[i] = fmaf(value, weight[i * step], some[i]);
                    }
                }
#pragma unroll
                for (int i = 0; i < kEach; ++i) total[i] += some[i];
            }
#pragma unroll
            for (int i = 0; i < kEach; ++i) values[first + i][pixel] = total[i];
        }
    });
    __syncwarp();
}

// @HaloGroup deps: HaloSubtile
// Eight neighbouring pixels of a tile, of whose 32 groups a lane knows one: how many there are, and
// the first of them among all.
struct HaloGroup {
    uint32_t row;
    int count;
};
template <typename T>
OPWELD_FN HaloGroup find_group(const Halos<T::kWidth>& halos, const TileAt& tile) {
    const int lane = own_thread() % 32;
    int64_t row;
    const int count = halos.run_of(tile, lane / 16, lane % 16, &row);
    return {uint32_t(row), count};
}

// @find_runs deps: HaloSubtile, takes_runs
// Where four neighbouring pixels of a lane go, the same of all filters: how many of them there are,
// what an epilogue says of the first row, and whether it takes them as a run.
template <typename Epilogue>
struct HaloRun {
    static constexpr int kEach = 4, kQuads = 64 / kEach;
    uint32_t row;
    int count;
    bool whole;
    decltype(std::declval<Epilogue>().row_at(uint32_t())) starts;
};
// Those of the four subtiles of a tile, together, so that they wait for each other's divisions
// less.
template <typename T, typename Epilogue>
OPWELD_FN auto find_runs(const Halos<T::kWidth>& halos, const TileAt& tile,
                         const Epilogue& epilogue) {
    if constexpr (takes_runs<Epilogue>) {
        struct Runs {
            HaloRun<Epilogue> of_part[4];
        } runs;
        constexpr int kEach = HaloRun<Epilogue>::kEach, kQuads = HaloRun<Epilogue>::kQuads;
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            auto& run = runs.of_part[part];
            const HaloSubtile<T> subtile{halos, tile, part, 0};
            int64_t begin;
            run.count = min(subtile.run_from(own_thread() % kQuads * kEach, &begin), kEach);
            run.row = uint32_t(begin);
            run.whole = run.count == kEach && run.row % kEach == 0;
            run.starts = epilogue.row_at(run.whole ? run.row : uint32_t(0));
        }
        return runs;
    } else {
        return 0;
    }
}

// @give_subtile deps: EpilogueStore, HaloGroup, HaloSubtile, find_runs, give_columns, load_vector, takes_rows, takes_runs
// A subtile to an epilogue that takes runs of rows.
template <typename T, int kPitch, typename Epilogue>
OPWELD_FN void give_in_runs(const float (&values)[16][kPitch], const HaloSubtile<T>& subtile,
                            const HaloRun<Epilogue>& run, const Epilogue& epilogue) {
    constexpr int kEach = HaloRun<Epilogue>::kEach, kQuads = HaloRun<Epilogue>::kQuads;
    const int lane = own_thread() % 32, pixel = lane % kQuads * kEach;
    const int filters = subtile.filters();
    constexpr int kStep = 32 / kQuads, kTogether = 4;
    const auto give = [&](auto count, int first) {
        give_columns<decltype(count)::value, kStep>(
            epilogue, run.starts, subtile.column + first,
            [&](int i) { return load_vector<kEach>(&values[first + i][pixel]); });
    };
    if (run.whole && filters == 16) {
#pragma unroll
        for (int i = 0; i < 16; i += kStep * kTogether)
            give(std::integral_constant<int, kTogether>(), lane / kQuads + i);
        return;
    }
    if (run.whole) {
#pragma unroll 1
        for (int i = lane / kQuads; i < filters; i += kStep)
            give(std::integral_constant<int, 1>(), i);
        return;
    }
#pragma unroll 1
    for (int j = 0; j < run.count; ++j) {
        const auto starts = epilogue.row_at(run.row + j);
#pragma unroll 1
        for (int i = lane / kQuads; i < filters; i += kStep) {
            const float value[1] = {values[i][pixel + j]};
            epilogue.template give<false>(starts, uint32_t(subtile.column + i), value);
        }
    }
}
// A subtile to an epilogue whose columns are neighbours in memory, of which there are whole fours:
// a lane has four of a pixel, and takes the next one eight pixels on. What is read for all of them
// is under way together.
template <typename T, int kPitch, typename Epilogue>
OPWELD_FN void give_in_rows(const float (&values)[16][kPitch], const HaloSubtile<T>& subtile,
                            const HaloGroup& of_lane, const Epilogue& epilogue) {
    constexpr int kRows = 64 / 8;
    const int lane = own_thread() % 32, first = lane % 4 * 4, own = lane / 4;
    const uint32_t column = uint32_t(subtile.column + first);
    decltype(epilogue.row_at(uint32_t())) at[kRows];
    bool exists[kRows], all = true;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        const int pixel = 8 * i + own;
        const int group =
            subtile.block_of(subtile.part, pixel) * 16 + subtile.group_of(subtile.part, pixel);
        const uint32_t row = __shfl_sync(~0u, of_lane.row, group) + own;
        exists[i] = own < __shfl_sync(~0u, of_lane.count, group);
        all = all && exists[i];
        at[i] = epilogue.row_at(exists[i] ? row : uint32_t(0));
    }
    const auto staged = [&](int i) {
        Vector<float, 4> found;
#pragma unroll
        for (int j = 0; j < 4; ++j) found.lane[j] = values[first + j][8 * i + own];
        return found;
    };
    if (first >= subtile.filters()) return;
    if (all) {
        epilogue.template give_rows<4>(at, column, staged);
        return;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i)
        if (exists[i]) epilogue.template give<true>(at[i], column, staged(i).lane);
}
// A subtile to any epilogue, one by one.
template <typename Index, typename T, int kPitch, typename Epilogue>
OPWELD_FN void give_one_by_one(const float (&values)[16][kPitch], const HaloSubtile<T>& subtile,
                               const Epilogue& epilogue) {
    const int filters = subtile.filters();
    subtile.of_each([&](int pixel, int64_t row) {
        const auto give_all = [&](const auto& give) {
#pragma unroll 1
            for (int i = 0; i < filters; ++i) {
                const float value[1] = {values[i][pixel]};
                give(Index(subtile.column + i), value);
            }
        };
        if constexpr (takes_rows<Epilogue>) {
            const auto starts = epilogue.row_at(Index(row));
            give_all([&](Index column, const auto& value) {
                epilogue.template give<false>(starts, column, value);
            });
        } else {
            const Index first = Index(row) * Index(subtile.halos.c.filters);
            give_all([&](Index column, const auto& value) { epilogue(first + column, value); });
        }
    });
}

// @give_halos deps: Drowned, HaloScales, HaloSize, find_runs, give_subtile, lay_out_pixels, pack_values, sum_in_float32
// Whether values of a subtile are so small that digits are missing, by their scales.
template <typename T, int kPitch>
OPWELD_FN bool are_cancelled(const float (&values)[16][kPitch], const HaloSubtile<T>& subtile,
                             const HaloScales& known) {
    Drowned<1> cancelled;
    const int lane = own_thread() % 32;
    for (int i = 0; i < 16; ++i) {
        const float own = i < 8 ? known.of_filter[0] : known.of_filter[1];
        const float of_filter = __shfl_sync(~0u, own, i % 8 * 4);
        for (int pixel = lane; pixel < 64; pixel += 32) {
            const int block = subtile.block_of(subtile.part, pixel);
            cancelled.add(values[i][pixel],
                          of_filter * (block ? known.of_block[1] : known.of_block[0]));
        }
    }
    return cancelled.are_many();
}
// A warp's part of a tile to the epilogue.
template <typename T, typename Runs, typename Epilogue>
OPWELD_FN void give_halos(const float (&sums)[2][64], typename T::Memory& memory,
                          const Halos<T::kWidth>& halos, const TileAt& tile,
                          const HaloScales& known, [[maybe_unused]] const Runs& runs,
                          [[maybe_unused]] const HaloGroup& group,
                          const EpilogueStore<Epilogue>& sink) {
    const int warp = own_thread() / 32;
    auto& values = memory.values[warp];
    float upper[2], lower[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        upper[i] = known.of_filter[0] * known.of_block[i];
        lower[i] = known.of_filter[1] * known.of_block[i];
    }
#pragma unroll 1
    for (int part = 0; part < 4; ++part) {
        const HaloSubtile<T> subtile{halos, tile, part, tile.column * T::kTileN + warp * 16};
        if (part == 0) lay_out_pixels<T, 0>(sums, values, upper, lower);
        else if (part == 1) lay_out_pixels<T, 1>(sums, values, upper, lower);
        else if (part == 2) lay_out_pixels<T, 2>(sums, values, upper, lower);
        else lay_out_pixels<T, 3>(sums, values, upper, lower);
        if constexpr (takes_runs<Epilogue>) {
            if (sink.narrow && sink.epilogue.in_runs && known.marks == 0) {
                const auto run = part == 0   ? runs.of_part[0]
                                 : part == 1 ? runs.of_part[1]
                                 : part == 2 ? runs.of_part[2]
                                             : runs.of_part[3];
                give_in_runs(values, subtile, run, sink.epilogue);
                continue;
            }
        }
        if constexpr (takes_rows<Epilogue> && Epilogue::kLanes == 4) {
            if (sink.narrow && sink.paired && halos.c.filters % 4 == 0 && known.marks == 0) {
                give_in_rows(values, subtile, group, sink.epilogue);
                continue;
            }
        }
        if (known.marks >= kDoesNotFit ||
            (known.marks != 0 && are_cancelled(values, subtile, known)))
            sum_in_float32(values, subtile);
        if (sink.narrow) give_one_by_one<uint32_t>(values, subtile, sink.epilogue);
        else give_one_by_one<uint64_t>(values, subtile, sink.epilogue);
    }
}

}  // namespace op
