// Convolutions of planes whose taps and strides are known. A block brings the rows of x below its
// tile to shared memory, with zeros beside the image; a thread keeps the sums of some rows of four
// neighbouring places, and goes down the rows below them once.

namespace op {

// @PlaneGrid deps: PlaneSlice, num_multiprocessors
// How the places are shared out. A block has a tile of one slice, of so many threads across and
// down, or several whole slices.
struct PlaneGrid {
    int across, down, slices;
    int lines, pitch;  // rows of x below a slice's tile in shared memory, and floats of a row
    int kept;          // places of a row in shared memory
    bool packed;       // rows of x are read 16 bytes at a time
    int num_slices;    // in all
    Divisor blocks_across, blocks_down, by_across, by_tile, by_pitch, by_kept;

    // The largest that has so many threads and so much shared memory, or smaller ones where there
    // would be few blocks; none where `across` is 0.
    template <typename Tile>
    static PlaneGrid of(const Planes& c, int lanes) {
        const auto parts = [](int64_t all, int64_t most) {
            const int64_t count = (all + most - 1) / most;
            return int((all + count - 1) / count);
        };
        const int64_t columns = (c.result[2] + Tile::kColumns - 1) / Tile::kColumns;
        const int64_t rows = (c.result[1] + Tile::kRows - 1) / Tile::kRows;
        PlaneGrid g{};
        g.num_slices = int(c.num_slices());
        // Tiles of wide planes are near squares: what they read beside their own is less.
        g.across = parts(columns, rows == 1 ? Tile::kThreads : columns > 64 ? 32 : 64);
        g.down = parts(rows, Tile::kThreads / g.across);
        g.slices = g.across == columns && g.down == rows ? Tile::kThreads / (g.across * g.down) : 1;
        if (g.slices > Tile::kSlices) g.slices = Tile::kSlices;
        if (g.slices > g.num_slices) g.slices = g.num_slices;
        while (g.across > 0 && (g.bytes<Tile>() > Tile::kMostBytes || g.has_few<Tile>(c))) {
            if (g.slices > 1) g.slices = (g.slices + 1) / 2;
            else if (g.down > 1) g.down = parts(rows, (g.down + 1) / 2);
            else g.across = g.across > 1 ? parts(columns, (g.across + 1) / 2) : 0;
        }
        if (g.across == 0) return g;
        g.lines = g.lines_of<Tile>(), g.pitch = g.pitch_of<Tile>();
        g.kept = int(g.across < columns ? g.across * Tile::kColumns : c.result[2]);
        g.packed = reads_packets(c);
        g.blocks_across = (columns + g.across - 1) / g.across;
        g.blocks_down = (rows + g.down - 1) / g.down;
        g.by_across = g.across, g.by_tile = g.across * g.down;
        g.by_pitch = g.packed ? g.pitch / 4 : g.pitch, g.by_kept = g.kept / lanes;
        return g;
    }
    int64_t blocks() const {
        return blocks_across.by * blocks_down.by * ((num_slices + slices - 1) / slices);
    }
    int threads() const { return (across * down * slices + 31) / 32 * 32; }
    template <typename Tile>
    int lines_of() const {
        return (down - 1) * Tile::kRows * Tile::kStrideDown + Tile::kDown;
    }
    template <typename Tile>
    int pitch_of() const {
        return (across - 1) * Tile::kColumns * Tile::kStrideAcross + Tile::kRead;
    }
    template <typename Tile>
    int64_t bytes() const {
        const int64_t tile = int64_t(lines_of<Tile>()) * pitch_of<Tile>();
        return 4 * slices * (tile + Tile::kFilterPitch);
    }
    // Whether multiprocessors would be without blocks, and these could be smaller.
    template <typename Tile>
    bool has_few(const Planes& c) const {
        const int64_t places = int64_t(across) * down * slices;
        const int64_t all = c.places() * num_slices / (Tile::kColumns * Tile::kRows);
        return places > 32 && (slices > 1 || down > 1) && all < places * 2 * num_multiprocessors();
    }
    static bool reads_packets(const Planes& c) {
        int64_t steps = c.image_step | c.channel_step | c.step[0] | c.step[1] | c.extent[2];
        const bool aligned = reinterpret_cast<uintptr_t>(c.x) % 16 == 0;
        return aligned && c.step[2] == 1 && steps % 4 == 0;
    }
};

// @bring_plane_taps deps: PlaneSlice
// Brings the taps of so many slices to shared memory. Returns whether all are finite.
template <typename Tile>
OPWELD_FN bool bring_plane_taps(const Planes& c, const PlaneSlice* slices, int num, float* to) {
    bool finite = true;
    for (int i = int(threadIdx.x); i < num * Tile::kTaps; i += int(blockDim.x)) {
        const int slice = i / Tile::kTaps, tap = i % Tile::kTaps, line = tap / Tile::kWide;
        const int deep = line / Tile::kTall, down = line % Tile::kTall, s = tap % Tile::kWide;
        const float value =
            slices[slice].weight[deep * c.tap_step[0] + down * c.tap_step[1] + s * c.tap_step[2]];
        to[slice * Tile::kFilterPitch + line * Tile::kTapPitch + s] = value;
        finite = finite && fabsf(value) <= 3.402823466e38f;
    }
    return finite;
}

// @bring_planes deps: PlaneGrid, copy_async, copy_async_word
// Has the rows of x below so many slices' tiles on their way to shared memory, `deep` planes below
// the first; their first place is at this row and column of the image. A thread goes down columns.
template <int kCount>
OPWELD_FN void bring_planes(const Planes& c, const PlaneGrid& g, const PlaneSlice* slices, int num,
                            int deep, int row, int column, float* to) {
    const int packs = g.pitch / kCount, threads = int(blockDim.x);
    const int together = packs < threads ? threads / packs : 1;  // rows
    const int line = int(g.by_pitch.quotient(threadIdx.x)), all = num * g.lines;
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    if (line >= together) return;
#pragma unroll 1
    for (int i = int(threadIdx.x) - line * packs; i < packs; i += threads) {
        const int place = column + kCount * i;
        const bool is_column = unsigned(place) < unsigned(c.extent[2]);
        int y = line, of = 0;
#pragma unroll 4
        for (int each = line; each < all; each += together, y += together) {
            while (y >= g.lines) y -= g.lines, ++of;
            const int z = slices[of].corner + deep;
            const bool inside = is_column && unsigned(row + y) < unsigned(c.extent[1]) &&
                                unsigned(z) < unsigned(c.extent[0]);
            const int64_t at = z * c.step[0] + (row + y) * c.step[1] + place * c.step[2];
            const float* from = inside ? slices[of].x + at : static_cast<const float*>(c.x);
            const unsigned own = address + 4 * unsigned(each * g.pitch + kCount * i);
            if constexpr (kCount == 4) copy_async(own, from, inside ? 16 : 0);
            else copy_async_word(own, from, inside ? 4 : 0);
        }
    }
}

// @add_plane_row deps: load_vector
// Adds what row i below a thread's places gives to their sums.
template <typename Tile>
OPWELD_FN void add_plane_row(const float* row, int i, const float* filter,
                             float (&sums)[Tile::kRows][Tile::kColumns]) {
    float values[Tile::kRead];
#pragma unroll
    for (int j = 0; j < Tile::kRead; j += 4) {
        const auto four = load_vector<4>(row + j);
#pragma unroll
        for (int l = 0; l < 4; ++l) values[j + l] = four.lane[l];
    }
#pragma unroll
    for (int p = 0; p < Tile::kRows; ++p) {
        const int below = i - p * Tile::kStrideDown, down = below / Tile::kFarDown;
        if (below < 0 || below % Tile::kFarDown != 0 || down >= Tile::kTall) continue;
#pragma unroll
        for (int s = 0; s < Tile::kWide; s += 4) {
            const auto taps = load_vector<4>(filter + down * Tile::kTapPitch + s);
#pragma unroll
            for (int l = 0; l < 4; ++l) {
                if (s + l >= Tile::kWide) continue;
#pragma unroll
                for (int q = 0; q < Tile::kColumns; ++q) {
                    const int at = q * Tile::kStrideAcross + (s + l) * Tile::kFarAcross;
                    sums[p][q] = fmaf(values[Tile::kShift + at], taps.lane[l], sums[p][q]);
                }
            }
        }
    }
}

// @give_plane_rows deps: EpilogueStore, PlaneGrid
// A block gives what it has in shared memory, so many rows from flat position `at` on, of a result
// of `width` places a row, of which there are `left` from there on.
template <int kLanes, typename Epilogue>
OPWELD_FN void give_plane_rows(const PlaneGrid& g, const float* kept, int rows, int64_t at,
                               int64_t width, int left, const EpilogueStore<Epilogue>& sink) {
    const int packs = int(g.by_kept.by);
#pragma unroll 1
    for (int i = int(threadIdx.x); i < rows * packs; i += int(blockDim.x)) {
        const int row = int(g.by_kept.quotient(unsigned(i))), column = (i - row * packs) * kLanes;
        const auto values = load_vector<kLanes>(kept + row * g.kept + column);
        if (column < left) sink.take(0, at + row * width + column, values.lane);
    }
}

// @planes_kernel deps: add_plane_row, bring_plane_taps, bring_planes, give_plane_rows, store_vector, sum_windows
template <typename Tile, int kLanes, typename Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kResident)
    planes_kernel(const __grid_constant__ Planes c, const __grid_constant__ PlaneGrid g,
                  const PlaneOrder order, const EpilogueStore<Epilogue> sink) {
    extern __shared__ __align__(16) float plane_memory[];
    __shared__ PlaneSlice slices[Tile::kSlices];
    const uint32_t line = g.blocks_across.quotient(uint32_t(blockIdx.x));
    const uint32_t group = g.blocks_down.quotient(line);
    const int left = int(blockIdx.x - line * uint32_t(g.blocks_across.by)) * g.across;
    const int top = int(line - group * uint32_t(g.blocks_down.by)) * g.down;
    const int first_row = top * Tile::kRows, first_column = left * Tile::kColumns;
    const int first = int(group) * g.slices, there = g.num_slices - first;
    const int num = there < g.slices ? there : g.slices, thread = int(threadIdx.x);
    float* const filters = plane_memory + g.slices * g.lines * g.pitch;
    if (thread < num) slices[thread] = PlaneSlice(c, order, uint32_t(first + thread));
    __syncthreads();

    const int row = first_row * Tile::kStrideDown - int(c.padding[1]);
    const int column = first_column * Tile::kStrideAcross - Tile::kBefore - Tile::kShift;
    const auto bring = [&](int deep) {
        const int far = deep * int(c.dilation[0]);
        if (g.packed) bring_planes<4>(c, g, slices, num, far, row, column, plane_memory);
        else bring_planes<1>(c, g, slices, num, far, row, column, plane_memory);
        commit_copies();
    };
    bring(0);
    const bool own_finite = bring_plane_taps<Tile>(c, slices, num, filters);
    await_copies<0>();
    const bool finite = __syncthreads_and(own_finite);

    const int own = int(g.by_tile.quotient(unsigned(thread)));
    const int in_tile = thread - own * int(g.by_tile.by);
    const int down = int(g.by_across.quotient(unsigned(in_tile)));
    const int beside = in_tile - down * g.across;
    const int own_row = down * Tile::kRows, own_column = beside * Tile::kColumns;
    const bool exists = own < num;
    float sums[Tile::kRows][Tile::kColumns] = {};
    if (finite) {
        const float* rows = plane_memory + (own * g.lines + own_row * Tile::kStrideDown) * g.pitch +
                            own_column * Tile::kStrideAcross;
#pragma unroll 1
        for (int deep = 0; deep < Tile::kDeep; ++deep) {
            if (deep > 0) {
                __syncthreads();  // all have read the rows before
                bring(deep);
                await_copies<0>();
                __syncthreads();
            }
            const float* filter = filters + own * Tile::kFilterPitch + deep * Tile::kPlanePitch;
            if (!exists) continue;
#pragma unroll Tile::kTogether
            for (int i = 0; i < Tile::kDown; i += Tile::kRowStep)
                add_plane_row<Tile>(rows + i * g.pitch, i, filter, sums);
        }
    }
    __syncthreads();  // all have read the rows of x, whose memory the sums take
    const int below = int(c.result[1]) - first_row, high = g.down * Tile::kRows;
    const int tall = below < high ? below : high;  // rows of a slice
    const int kept_rows = tall - own_row, kept_columns = g.kept - own_column;
    float* kept = plane_memory + (own * tall + own_row) * g.kept + own_column;
    if (exists && finite) {
#pragma unroll
        for (int p = 0; p < Tile::kRows; ++p) {
            if (p >= kept_rows) continue;
            if constexpr (kLanes == Tile::kColumns) {
                Vector<float, kLanes> four;
                memcpy(&four, sums[p], sizeof(four));
                store_vector<kLanes>(kept + p * g.kept, four);
            } else {
#pragma unroll
                for (int q = 0; q < Tile::kColumns; ++q)
                    if (q < kept_columns) kept[p * g.kept + q] = sums[p][q];
            }
        }
    } else if (exists) {
        // What is not there must add nothing, but zero times infinity is something.
#pragma unroll 1
        for (int i = 0; i < Tile::kRows * Tile::kColumns; ++i) {
            const int p = i / Tile::kColumns, q = i % Tile::kColumns;
            const int y = row + (own_row + p) * Tile::kStrideDown;
            const int place = column + Tile::kShift + (own_column + q) * Tile::kStrideAcross;
            if (p >= kept_rows || q >= kept_columns) continue;
            float sum[1] = {};
            sum_windows(c, slices[own], y, place, 0, sum);
            kept[p * g.kept + q] = sum[0];
        }
    }
    __syncthreads();
    const int64_t width = c.result[2];
    const int64_t at = (first * c.result[1] + first_row) * width + first_column;
    give_plane_rows<kLanes>(g, plane_memory, num * tall, at, width, int(width) - first_column,
                            sink);
}

// @PlaneTiles deps: AnyPlanes, planes_kernel
// Filters of so many taps down and across, with so many planes of them; strides and dilations down
// and across, and the padding before a row.
template <int kPlanes, int kHigh, int kAcross, int kStepDown, int kStepAcross, int kDilationDown,
          int kDilationAcross, int kPadding>
struct PlaneTiles {
    static constexpr int kDeep = kPlanes, kTall = kHigh, kWide = kAcross;
    static constexpr int kTaps = kDeep * kTall * kWide;
    static constexpr int kStrideDown = kStepDown, kStrideAcross = kStepAcross;
    static constexpr int kFarDown = kDilationDown, kFarAcross = kDilationAcross;
    static constexpr int kBefore = kPadding, kShift = (4 - kPadding % 4) % 4;  // to 16 bytes
    // Where many rows are summed they are not written out.
    static constexpr bool kMany = kTall > 7 || kWide > 7;
    static constexpr int kColumns = 4;
    static constexpr int kRows = kTall == 1 ? 1 : kMany || kStepDown > 1 ? 4 : 7;
    static constexpr int kRowStep = kRows == 1 ? kFarDown : 1, kTogether = kMany ? 1 : 64;
    static constexpr int kDown = (kRows - 1) * kStrideDown + (kTall - 1) * kFarDown + 1;
    static constexpr int kReach = (kColumns - 1) * kStrideAcross + (kWide - 1) * kFarAcross + 1;
    static constexpr int kRead = (kShift + kReach + 3) / 4 * 4;  // floats of a row
    static constexpr int kTapPitch = (kWide + 3) / 4 * 4, kPlanePitch = kTall * kTapPitch;
    static constexpr int kFilter = kDeep * kPlanePitch;
    static constexpr int kFilterPitch = kFilter % 32 == 0 ? kFilter + 4 : kFilter;
    static constexpr int kThreads = 128, kSlices = 64, kMostBytes = 48 << 10;
    static constexpr int kResident = kTaps <= 9 ? 8 : kTaps <= 25 ? 5 : 4;
    static_assert(kReach <= 64 && kFilterPitch * 4 < kMostBytes / 2, "see AnyPlanes");

    static bool takes(const Planes& c) {
        return c.taps[0] == kDeep && c.taps[1] == kTall && c.taps[2] == kWide &&
               c.stride[1] == kStrideDown && c.stride[2] == kStrideAcross &&
               c.dilation[1] == kFarDown && c.dilation[2] == kFarAcross && c.padding[2] == kBefore;
    }
    template <typename Epilogue>
    static int launch(const Planes& c, const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        const auto run = [&](auto lanes) {
            const PlaneGrid grid = PlaneGrid::of<PlaneTiles>(c, lanes);
            if (grid.across == 0) return AnyPlanes::launch(c, sink, stream);
            if (grid.blocks() >= 1ll << 31) return int(cudaErrorInvalidConfiguration);
            return Launch(grid.blocks(), grid.threads(), int(grid.bytes<PlaneTiles>()), stream)
                .run(planes_kernel<PlaneTiles, lanes, Epilogue>, c, grid, PlaneOrder(c), sink);
        };
        if (!takes(c) || c.has_channels_last()) return AnyPlanes::launch(c, sink, stream);
        if (sink.paired && c.result[2] % Epilogue::kLanes == 0)
            return run(std::integral_constant<int, Epilogue::kLanes>());
        return run(std::integral_constant<int, 1>());
    }
};

}  // namespace op
