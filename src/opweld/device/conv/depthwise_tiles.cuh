// Convolutions with a filter for each channel whose taps and strides are known. A thread keeps the
// sums of a tile of places, and reads each row of x below it once, some rows ahead.

namespace op {

// @TileRows deps: Depthwise, Vector, Word, to_compute
// The rows of x below a tile. A packet has the neighbouring channels of a place.
template <typename Tile, typename T, int kLanes>
struct TileRows {
    using Packet = Word<int(sizeof(T)) * kLanes>;
    using Columns = If<(Tile::kAcross > 32), uint64_t, uint32_t>;
    // Few rows of 16 bits are all on their way, and one that is all there is loaded without a
    // condition for each place: 0.073 ms for 3x3 taps, 32x96x112x112, not 0.090; rows of float32
    // take longer so (H100, 2026-11-26).
    static constexpr bool kEager = sizeof(T) == 2 && Tile::kFew;
    static constexpr int kAhead = kEager && Tile::kRows > 1 ? Tile::kDown : Tile::kAhead;
    static constexpr Columns kAll = ~Columns(0) >> (8 * sizeof(Columns) - Tile::kAcross);
    const Depthwise& c;
    const T* corner;
    int depth, row;
    Columns columns;  // a bit for each that is there

    __device__ __forceinline__ TileRows(const Depthwise& c, const T* x, const int (&at)[3],
                                        bool exists)
        : c(c), depth(at[0]), row(at[1]), columns(0) {
        corner = x + at[0] * c.step[0] + at[1] * c.step[1] + at[2] * int64_t(Tile::kStep);
#pragma unroll
        for (int j = 0; j < Tile::kAcross; ++j) {
            const bool inside = exists && unsigned(at[2] + j) < unsigned(c.extent[2]);
            columns |= Columns(inside) << j;
        }
    }
    // Brings row i of those of tap `deep`; zeros stand for what is not there.
    __device__ __forceinline__ void bring(Packet (&to)[Tile::kAcross], int deep, int i) const {
        const int down = deep * int(c.dilation[0]);
        const bool inside = unsigned(depth + down) < unsigned(c.extent[0]) &&
                            unsigned(row + i) < unsigned(c.extent[1]);
        const T* at = corner + down * c.step[0] + i * c.step[1];
        const Columns found = inside ? columns : 0;
        if (kEager && found == kAll) {
#pragma unroll
            for (int j = 0; j < Tile::kAcross; ++j)
                to[j] = *reinterpret_cast<const Packet*>(at + j * Tile::kStep);
            return;
        }
#pragma unroll
        for (int j = 0; j < Tile::kAcross; ++j) {
            to[j] = Packet();
            if (found >> j & 1) to[j] = *reinterpret_cast<const Packet*>(at + j * Tile::kStep);
        }
    }
    // Has the places that no tile beside it has on their way to the L2 cache.
    __device__ __forceinline__ void prefetch() const {
        constexpr int kHigh = Tile::kRows * Tile::kStrideDown;
        constexpr int kWide = Tile::kColumns * Tile::kStrideAcross;
        constexpr int kTop = Tile::kDown > kHigh ? (Tile::kDown - kHigh) / 2 : 0;
        constexpr int kLeft = Tile::kAcross > kWide ? (Tile::kAcross - kWide) / 2 : 0;
        const int member = int(threadIdx.x) % Tile::kTeam;
#pragma unroll
        for (int first = 0; first < kHigh * kWide; first += Tile::kTeam) {
            const int place = first + member, i = kTop + place / kWide, j = kLeft + place % kWide;
            const bool found = place < kHigh * kWide && j < Tile::kAcross && columns >> j & 1 &&
                               unsigned(row + i) < unsigned(c.extent[1]) &&
                               unsigned(depth) < unsigned(c.extent[0]);
            const T* at = corner + i * c.step[1] + j * Tile::kStep - member * kLanes;
            if (found) asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
        }
    }
    __device__ __forceinline__ static void widen(float (&to)[Tile::kAcross][kLanes],
                                                 const Packet (&from)[Tile::kAcross]) {
#pragma unroll
        for (int j = 0; j < Tile::kAcross; ++j) {
            Vector<T, kLanes> values;
            memcpy(&values, &from[j], sizeof(values));
#pragma unroll
            for (int l = 0; l < kLanes; ++l) to[j][l] = to_compute(values.lane[l]);
        }
    }
};

// @sum_row deps: load_vector
// Adds what row i below a tile gives to its sums.
template <typename Tile, int kLanes, int kPitch>
OPWELD_FN void sum_row(const float (&values)[Tile::kAcross][kLanes], int deep, int i,
                       const float (*weights)[kPitch],
                       float (&sums)[Tile::kRows][Tile::kColumns][kLanes]) {
#pragma unroll
    for (int p = 0; p < Tile::kRows; ++p) {
        const int below = i - p * Tile::kStrideDown, down = below / Tile::kDilation;
        if (below < 0 || below % Tile::kDilation != 0 || down >= Tile::kTapsDown) continue;
        const int first = (deep * Tile::kTapsDown + down) * Tile::kTapsAcross;
#pragma unroll
        for (int s = 0; s < Tile::kTapsAcross; ++s) {
            const auto weight = load_vector<kLanes>(&weights[first + s][0]);
#pragma unroll
            for (int q = 0; q < Tile::kColumns; ++q)
#pragma unroll
                for (int l = 0; l < kLanes; ++l)
                    sums[p][q][l] = fmaf(values[q * Tile::kStrideAcross + s * Tile::kDilation][l],
                                         weight.lane[l], sums[p][q][l]);
        }
    }
}

// @sum_tile deps: TileRows, sum_row
// The sums of a tile, whose taps are all finite. `ahead` has the first rows.
template <typename Tile, typename Rows, int kLanes, int kPitch>
OPWELD_FN void sum_tile(const Rows& rows,
                        typename Rows::Packet (&ahead)[Rows::kAhead][Tile::kAcross],
                        const float (*weights)[kPitch],
                        float (&sums)[Tile::kRows][Tile::kColumns][kLanes]) {
#pragma unroll 1
    for (int deep = 0; deep < Tile::kTapsDeep; ++deep) {
#pragma unroll Tile::kTogether
        for (int i = 0; i < Tile::kDown; i += Tile::kRowStep) {
            auto& own = ahead[i / Tile::kRowStep % Rows::kAhead];
            const int next = i + Rows::kAhead * Tile::kRowStep;
            float values[Tile::kAcross][kLanes];
            Rows::widen(values, own);
            if (next < Tile::kDown) rows.bring(own, deep, next);
            else if (deep + 1 < Tile::kTapsDeep) rows.bring(own, deep + 1, 0);
            sum_row<Tile>(values, deep, i, weights, sums);
        }
    }
}

// @depthwise_kernel deps: DepthwiseTiles, add_taps, bring_taps, give_places, sum_tile
// Tiles of a convolution whose taps and strides are known; a multiplier of 1.
template <typename Tile, typename T, int kLanes, typename Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kResident)
    depthwise_kernel(const __grid_constant__ Depthwise c, const DepthwiseTiles tiles,
                     const EpilogueStore<Epilogue> sink) {
    constexpr int kChannels = Tile::kTeam * kLanes, kPitch = kChannels + kLanes;
    constexpr int kPlaces = Tile::kRows * Tile::kColumns;
    using Rows = TileRows<Tile, T, kLanes>;
    __shared__ __align__(16) float weights[Tile::kTaps][kPitch];
    __shared__ __align__(16) float kept[kPlaces][Tile::kThreads][kLanes];
    const uint32_t group = tiles.chunks.quotient(uint32_t(blockIdx.x));
    const int64_t first = (blockIdx.x - group * uint32_t(tiles.chunks.by)) * kChannels;
    const int member = int(threadIdx.x) % Tile::kTeam * kLanes;
    const int64_t teams = blockDim.x / Tile::kTeam, channel = first + member;
    const int64_t tile = group * teams + threadIdx.x / Tile::kTeam;
    const bool exists = tile < tiles.count && channel < c.channels;
    const DepthwisePlace p = tiles.place(c, exists ? tile : 0, Tile::kRows, Tile::kColumns);
    const auto* x = static_cast<const T*>(c.x) + p.image * c.image_step + channel;
    const auto* weight = static_cast<const T*>(c.weight) + first * Tile::kTaps;

    const Rows rows(c, x, p.corner, exists);
    typename Rows::Packet ahead[Rows::kAhead][Tile::kAcross];
    rows.prefetch();
#pragma unroll
    for (int i = 0; i < Rows::kAhead; ++i) rows.bring(ahead[i], 0, i * Tile::kRowStep);
    const bool own_finite = bring_taps<Tile::kTaps, kChannels, Tile::kThreads>(
        weights, weight, Tile::kTaps, Tile::kTaps, c.channels - first);
    const bool finite = __syncthreads_and(own_finite);
    if (!exists) return;
    const auto* own = reinterpret_cast<const float(*)[kPitch]>(&weights[0][member]);
    if (finite) {
        float sums[Tile::kRows][Tile::kColumns][kLanes] = {};
        sum_tile<Tile>(rows, ahead, own, sums);
#pragma unroll
        for (int i = 0; i < kPlaces * kLanes; ++i)
            kept[i / kLanes][threadIdx.x][i % kLanes] =
                sums[i / kLanes / Tile::kColumns][i / kLanes % Tile::kColumns][i % kLanes];
    } else {  // what is not there must add nothing, and zero times infinity is something
#pragma unroll 1
        for (int row = 0; row < Tile::kRows; ++row) {
            float sums[Tile::kColumns][kLanes] = {};
            const int down = p.corner[1] + row * Tile::kStrideDown;
            const int corner[] = {p.corner[0], down, p.corner[2]};
            add_taps(c, x, corner, 0, Tile::kTaps, own, sums);
#pragma unroll
            for (int i = 0; i < Tile::kColumns * kLanes; ++i)
                kept[row * Tile::kColumns + i / kLanes][threadIdx.x][i % kLanes] =
                    sums[i / kLanes][i % kLanes];
        }
    }
    give_places<Tile::kRows, Tile::kColumns>(c, p, channel, kept, sink);
}

// @TapTiles deps: depthwise_kernel
// Filters of so many taps down and across, with so many planes of them; strides down and across;
// one dilation down and across; places of x lie kChannels apart.
template <int kDeep, int kHigh, int kWide, int kStepDown, int kStepAcross, int kFar, int kChannels>
struct TapTiles {
    static constexpr int kTapsDeep = kDeep, kTapsDown = kHigh, kTapsAcross = kWide;
    static constexpr int kTaps = kDeep * kHigh * kWide, kStep = kChannels;
    static constexpr int kStrideDown = kStepDown, kStrideAcross = kStepAcross, kDilation = kFar;
    // Where many rows are summed they are not written out, and a thread has one.
    static constexpr bool kMany = kHigh > 7 || kWide > 7;
    static constexpr int kRows = kHigh == 1 || kMany ? 1 : 2, kColumns = kStepAcross == 1 ? 7 : 4;
    static constexpr int kRowStep = kRows == 1 ? kFar : 1, kTogether = kMany ? 1 : 64;
    static constexpr int kDown = (kRows - 1) * kStrideDown + (kHigh - 1) * kFar + 1;
    static constexpr int kAcross = (kColumns - 1) * kStrideAcross + (kWide - 1) * kFar + 1;
    // Rows on their way and blocks, as registers allow.
    static constexpr bool kFew = kDeep == 1 && kTaps <= 9;
    static constexpr int kAhead = !kFew || kRows == 1 ? 1 : kStepDown == 1 ? 2 : kDown;
    static constexpr int kThreads = 128, kResident = kFew && kStepDown == 1 && kFar == 1 ? 5 : 4;
    static constexpr int kTeam = kTaps <= 200 ? 16 : 4;  // more do not fit shared memory
    static_assert(kTaps <= (kRows == 1 ? 1000 : 850) && kAcross <= 64, "see AnyTaps");

    static bool takes(const Depthwise& c) {
        return c.taps[0] == kDeep && c.taps[1] == kHigh && c.taps[2] == kWide &&
               c.stride[1] == kStepDown && c.stride[2] == kStepAcross && c.dilation[1] == kFar &&
               c.dilation[2] == kFar && c.step[2] == kChannels && c.multiplier == 1;
    }
    template <typename T, int kLanes, typename Epilogue>
    static auto kernel() {
        return depthwise_kernel<TapTiles, T, kLanes, Epilogue>;
    }
};

// @DepthwiseForm deps: ConvolutionForm, Depthwise, launch_depthwise_tiles
// As convolve has it: by `Tiles` where they take it.
template <typename Tiles>
struct DepthwiseForm : ConvolutionForm {
    static bool reads(const Convolution& c) { return c.channel == 1 || c.channels == 1; }

    static bool fits(int64_t channels, const TensorView& weight) {
        return weight.sizes[1] == 1 && channels > 0 && weight.sizes[0] % channels == 0;
    }
    static int64_t workspace_bytes(const Convolution&) { return 0; }
    template <typename Epilogue>
    static int launch(const Convolution& c, void*, const EpilogueStore<Epilogue>& sink,
                      cudaStream_t stream) {
        Depthwise own{c.x, c.weight, c.batches, c.filters, c.filters / c.channels};
        int64_t step = c.pixel;
        own.image_step = c.batch;
        for (int axis = 2; axis >= 0; --axis) {
            own.extent[axis] = c.size[axis], own.result[axis] = c.out[axis];
            own.taps[axis] = c.kernel[axis], own.stride[axis] = c.stride[axis];
            own.padding[axis] = c.padding[axis], own.dilation[axis] = c.dilation[axis];
            own.step[axis] = step, step *= c.size[axis];
        }
        return launch_depthwise_tiles<Tiles, float>(own, sink, stream);
    }
};

}  // namespace op
