// Convolutions by halos (halo.cuh): how a warp's sums become results. It lays out 16 filters of 64
// pixels in shared memory, and hands them to the epilogue as neighbours in memory.

namespace op {

// @HaloScales deps:
// What is known of the sums of blocks of pixels: what they are to be multiplied by, and marks.
struct HaloScales {
    float of_block[2];
    uint32_t marks;
};

// @HaloStrip deps: Halos, TileGrid, own_thread
// 64 output pixels of a block of a tile, and 16 filters from `column` on.
template <int kWidth>
struct HaloStrip {
    const Halos<kWidth>& halos;
    const TileAt& tile;
    int block, half, column;

    // How many pixels there are from this one of a group of eight on, and the first of them among
    // all.
    __device__ __forceinline__ int run_from(int pixel, int64_t* row) const {
        const int count = halos.run_of(tile, block, half * 8 + pixel / 8, row) - pixel % 8;
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

// @lay_out_pixels deps: own_thread
// Lays out 64 pixels of a warp's 16 filters, from register kFirst on, times the scales of this
// lane's two filters.
template <int kFirst, int kPitch>
OPWELD_FN void lay_out_pixels(const float (&sums)[64], float (&values)[16][kPitch], float upper,
                              float lower) {
    const int lane = own_thread() % 32;
    __syncwarp();  // what was there has been read
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        const float by = i / 2 % 2 ? lower : upper;
        *reinterpret_cast<float2*>(&values[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2]) =
            make_float2(sums[kFirst + i] * by, sums[kFirst + i + 1] * by);
    }
    __syncwarp();
}

// @sum_in_float32 deps: HaloStrip, value_in_window
// A strip in float32, from the operands in memory: where halves do not do.
template <int kWidth, int kPitch>
OPWELD_FN void sum_in_float32(float (&values)[16][kPitch], const HaloStrip<kWidth>& strip) {
    constexpr int kEach = 4;
    const Convolution& c = strip.halos.c;
    const int64_t taps = c.taps(), step = c.channels * taps;
    const int filters = strip.filters();
    __syncwarp();
    strip.of_each([&](int pixel, int64_t row) {
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
                                                (strip.column + first) * step + channel * taps +
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

// @give_strip deps: EpilogueStore, HaloStrip, give_run, load_vector, takes_rows
// A strip to an epilogue that takes runs of rows: four pixels of a filter a lane, the same pixels
// of all its filters.
template <int kTogether, int kWidth, int kPitch, typename Epilogue>
OPWELD_FN void give_in_runs(const float (&values)[16][kPitch], const HaloStrip<kWidth>& strip,
                            const Epilogue& epilogue) {
    constexpr int kEach = 4, kQuads = 64 / kEach;
    const int lane = own_thread() % 32, pixel = lane % kQuads * kEach;
    const int filters = strip.filters();
    int64_t begin;
    const int count = strip.run_from(pixel, &begin);
    const auto row = uint32_t(begin);
    if (count >= kEach && row % kEach == 0) {
        const auto starts = epilogue.row_at(row);
#pragma unroll(kTogether)
        for (int i = lane / kQuads; i < 16; i += 32 / kQuads) {
            if (i >= filters) break;
            give_run(epilogue, starts, uint32_t(strip.column + i),
                     load_vector<kEach>(&values[i][pixel]).lane);
        }
        return;
    }
    for (int j = 0; j < min(count, kEach); ++j) {
        const auto starts = epilogue.row_at(row + j);
        for (int i = lane / kQuads; i < filters; i += 32 / kQuads) {
            const float value[1] = {values[i][pixel + j]};
            epilogue.template give<false>(starts, uint32_t(strip.column + i), value);
        }
    }
}
// The same to any epilogue, one by one.
template <typename Index, int kWidth, int kPitch, typename Epilogue>
OPWELD_FN void give_one_by_one(const float (&values)[16][kPitch], const HaloStrip<kWidth>& strip,
                               const Epilogue& epilogue) {
    const int filters = strip.filters();
    strip.of_each([&](int pixel, int64_t row) {
        const auto give_all = [&](const auto& give) {
#pragma unroll 1
            for (int i = 0; i < filters; ++i) {
                const float value[1] = {values[i][pixel]};
                give(Index(strip.column + i), value);
            }
        };
        if constexpr (takes_rows<Epilogue>) {
            const auto starts = epilogue.row_at(Index(row));
            give_all([&](Index column, const auto& value) {
                epilogue.template give<false>(starts, column, value);
            });
        } else {
            const Index first = Index(row) * Index(strip.halos.c.filters);
            give_all([&](Index column, const auto& value) { epilogue(first + column, value); });
        }
    });
}

// @give_halos deps: Drowned, HaloScales, HaloSize, give_strip, lay_out_pixels, pack_values, sum_in_float32
// Whether values of a strip are so small that digits are missing, of pixels that were multiplied by
// 1 / `largest`.
template <int kPitch>
OPWELD_FN bool are_cancelled(const float (&values)[16][kPitch], const float* scales,
                             float largest) {
    Drowned<1> cancelled;
    const int lane = own_thread() % 32;
    for (int i = 0; i < 16; ++i) {
        cancelled.add(values[i][lane], scales[i] * largest);
        cancelled.add(values[i][lane + 32], scales[i] * largest);
    }
    return cancelled.are_many();
}
// A warp's part of a tile to the epilogue. `scales`: of the tile's filters.
template <typename T, typename Epilogue>
OPWELD_FN void give_halos(const float (&sums)[2][64], typename T::Memory& memory,
                          const Halos<T::kWidth>& halos, const TileAt& tile, const float* scales,
                          const HaloScales& known, const EpilogueStore<Epilogue>& sink) {
    const int warp = own_thread() / 32, lane = own_thread() % 32;
    const float* const own = scales + warp * 16;
    auto& values = memory.values[warp];
#pragma unroll 1
    for (int part = 0; part < 4; ++part) {
        const float back = part < 2 ? known.of_block[0] : known.of_block[1];
        const float upper = own[lane / 4] * back, lower = own[lane / 4 + 8] * back;
        if (part == 0) lay_out_pixels<0>(sums[0], values, upper, lower);
        else if (part == 1) lay_out_pixels<32>(sums[0], values, upper, lower);
        else if (part == 2) lay_out_pixels<0>(sums[1], values, upper, lower);
        else lay_out_pixels<32>(sums[1], values, upper, lower);
        const HaloStrip<T::kWidth> strip{halos, tile, part / 2, part % 2,
                                         tile.column * T::kTileN + warp * 16};
        if constexpr (takes_rows<Epilogue>) {
            if (halos.in_runs && known.marks == 0) {
                give_in_runs<8>(values, strip, sink.epilogue);
                continue;
            }
        }
        if (known.marks == kDoesNotFit || (known.marks != 0 && are_cancelled(values, own, back)))
            sum_in_float32(values, strip);
        if (sink.narrow) give_one_by_one<uint32_t>(values, strip, sink.epilogue);
        else give_one_by_one<uint64_t>(values, strip, sink.epilogue);
    }
}

}  // namespace op
