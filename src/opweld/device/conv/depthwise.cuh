// Convolutions of which each channel has a filter of its own, of tensors with their channels last:
// what they are, how they are shared out, and a kernel for any of them. Sums are chains of fused
// multiply-adds in the order of the taps, and start from zero.

namespace op {

// @Depthwise deps:
// result[image, place, c] is the sum over taps of weight[c, tap] and of x[image, place * stride
// + tap * dilation - padding, c / multiplier], nothing where x has no such place. Axes of places
// and taps are depth, height and width.
struct Depthwise {
    const void *x, *weight;                // the taps of a channel lie together
    int64_t images, channels, multiplier;  // channels of the result: so many of each one of x
    int64_t extent[3], result[3];          // places of x and of the result
    int64_t image_step, step[3];           // elements of x between neighbours; channels have 1
    int64_t taps[3], stride[3], padding[3], dilation[3];  // padding: before the first place

    __host__ __device__ int64_t num_taps() const { return taps[0] * taps[1] * taps[2]; }
    __host__ __device__ int64_t num_places() const {
        return images * result[0] * result[1] * result[2];
    }
    // Whether numbers of places have 31 bits.
    bool is_near() const {
        constexpr int64_t kFar = 1 << 30;
        bool near = num_taps() < kFar;
        for (int a = 0; a < 3; ++a) {
            const int64_t last = result[a] * stride[a] + taps[a] * dilation[a] + padding[a];
            near = near && extent[a] < kFar && last < kFar;
        }
        return near;
    }
};

// @DepthwiseTiles deps: Depthwise, Divisor
// The first place of a thread: of the result, and of x where its first tap is.
struct DepthwisePlace {
    int64_t image;
    int depth, row, column;
    int corner[3];
};
// How the places are shared out. Neighbouring teams have neighbouring tiles; on wide planes some of
// them lie below each other, so that what a block reads is near a square.
struct DepthwiseTiles {
    Divisor chunks, band, across, bands, depth;
    int64_t count;

    static DepthwiseTiles of(const Depthwise& c, int rows, int columns, int channels) {
        const int64_t down = (c.result[1] + rows - 1) / rows;
        const int64_t across = (c.result[2] + columns - 1) / columns;
        const int64_t band = across <= 4 || down % 2 != 0 ? 1 : down % 4 != 0 ? 2 : 4;
        return {Divisor((c.channels + channels - 1) / channels),
                Divisor(band),
                Divisor(across),
                Divisor(down / band),
                Divisor(c.result[0]),
                c.images * c.result[0] * down * across};
    }
    template <typename Index>
    __device__ __forceinline__ DepthwisePlace place(const Depthwise& c, Index tile, int rows,
                                                    int columns) const {
        const auto split = [&](const Divisor& by) {
            const Index outer = by.quotient(tile), inner = tile - outer * Index(by.by);
            tile = outer;
            return int(inner);
        };
        DepthwisePlace p;
        p.row = split(band), p.column = split(across) * columns;
        p.row = (p.row + split(bands) * int(band.by)) * rows;
        p.depth = split(depth), p.image = tile;
        p.corner[0] = p.depth * int(c.stride[0]) - int(c.padding[0]);
        p.corner[1] = p.row * int(c.stride[1]) - int(c.padding[1]);
        p.corner[2] = p.column * int(c.stride[2]) - int(c.padding[2]);
        return p;
    }
    __device__ __forceinline__ DepthwisePlace place(const Depthwise& c, int64_t tile, int rows,
                                                    int columns) const {
        return count < 1ll << 31 ? place(c, uint32_t(tile), rows, columns)
                                 : place(c, uint64_t(tile), rows, columns);
    }
};

// @bring_taps deps: from_compute, to_compute
// Brings taps of kChannels channels, of which `channels` exist, to shared memory: kCount of each,
// which lie `taps` apart, and of these `left`. Zeros stand for others. Returns whether all are
// finite. The block is to wait before and after.
template <int kCount, int kChannels, int kThreads, int kPitch, typename T>
OPWELD_FN bool bring_taps(float (&to)[kCount][kPitch], const T* from, int taps, int left,
                          int64_t channels) {
    constexpr int kAll = kCount * kChannels, kEach = (kAll + kThreads - 1) / kThreads;
    constexpr int kTogether = kEach < 8 ? kEach : 8;  // loads on their way
    const int threads = int(blockDim.x), end = channels < kChannels ? int(channels) : kChannels;
    bool finite = true;
#pragma unroll 1
    for (int first = int(threadIdx.x); first < kAll; first += kTogether * threads) {
        T values[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            const int at = first + i * threads, channel = at / kCount, tap = at % kCount;
            const bool exists = channel < end && tap < left;
            values[i] = exists ? from[int64_t(channel) * taps + tap] : from_compute<T>(0.0f);
        }
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            const int at = first + i * threads;
            const float value = to_compute(values[i]);
            if (at < kAll) to[at % kCount][at / kCount] = value;
            finite = finite && fabsf(value) <= 3.402823466e38f;
        }
    }
    return finite;
}

// @add_taps deps: Depthwise, load_vector, to_compute
// Adds what taps first <= i < end give to the sums of kColumns places of a row; `corner` is where
// tap 0 of the first of them lies, `x` the image's first value of the channels.
template <int kColumns, int kLanes, int kPitch, typename T>
OPWELD_FN void add_taps(const Depthwise& c, const T* x, const int (&corner)[3], int first, int end,
                        const float (*weights)[kPitch], float (&sums)[kColumns][kLanes]) {
    const int taps[] = {int(c.taps[0]), int(c.taps[1]), int(c.taps[2])};
    const int dilation[] = {int(c.dilation[0]), int(c.dilation[1]), int(c.dilation[2])};
    const int step = int(c.stride[2]), width = int(c.extent[2]);
    int tap = first % taps[2], line = first / taps[2], down = line % taps[1], deep = line / taps[1];
#pragma unroll 1
    for (int i = first; i < end; ++i) {
        const int depth = corner[0] + deep * dilation[0], row = corner[1] + down * dilation[1];
        const int column = corner[2] + tap * dilation[2];
        if (unsigned(depth) < unsigned(c.extent[0]) && unsigned(row) < unsigned(c.extent[1])) {
            const T* at = x + depth * c.step[0] + row * c.step[1] + column * c.step[2];
            const auto weight = load_vector<kLanes>(&weights[i - first][0]);
#pragma unroll
            for (int q = 0; q < kColumns; ++q, at += step * c.step[2]) {
                if (unsigned(column + q * step) >= unsigned(width)) continue;
                const auto value = load_vector<kLanes>(at);
#pragma unroll
                for (int j = 0; j < kLanes; ++j)
                    sums[q][j] = fmaf(to_compute(value.lane[j]), weight.lane[j], sums[q][j]);
            }
        }
        if (++tap == taps[2]) {
            tap = 0;
            if (++down == taps[1]) down = 0, ++deep;
        }
    }
}

// @give_places deps: Depthwise, EpilogueStore, load_vector
// A thread gives what it has in shared memory of kRows by kColumns places.
template <int kRows, int kColumns, int kThreads, int kLanes, typename Epilogue>
OPWELD_FN void give_places(const Depthwise& c, const DepthwisePlace& p, int64_t channel,
                           const float (&kept)[kRows * kColumns][kThreads][kLanes],
                           const EpilogueStore<Epilogue>& sink) {
    const int rows = int(c.result[1]) - p.row, columns = int(c.result[2]) - p.column;
    int64_t line = (p.image * c.result[0] + p.depth) * c.result[1] + p.row;
    int64_t at = (line * c.result[2] + p.column) * c.channels + channel;
#pragma unroll 1
    for (int row = 0; row < (rows < kRows ? rows : kRows); ++row) {
        int64_t next = at;
#pragma unroll 1
        for (int i = 0; i < (columns < kColumns ? columns : kColumns); ++i, next += c.channels) {
            const auto sums = load_vector<kLanes>(&kept[row * kColumns + i][threadIdx.x][0]);
            sink.take(0, next, sums.lane);
        }
        at += c.result[2] * c.channels;
    }
}

// @launch_depthwise deps: DepthwiseTiles, EpilogueStore, Launch, num_multiprocessors
// Blocks are smaller where there would be few.
template <typename Tile, int kLanes, typename Epilogue>
static int launch_depthwise(void (*kernel)(Depthwise, DepthwiseTiles, EpilogueStore<Epilogue>),
                            const Depthwise& c, const EpilogueStore<Epilogue>& sink,
                            cudaStream_t stream) {
    const auto tiles = DepthwiseTiles::of(c, Tile::kRows, Tile::kColumns, Tile::kTeam * kLanes);
    int threads = Tile::kThreads;
    const auto blocks = [&] {
        const int64_t teams = threads / Tile::kTeam;
        return tiles.chunks.by * ((tiles.count + teams - 1) / teams);
    };
    while (threads > 64 && blocks() < 2 * num_multiprocessors()) threads /= 2;
    if (blocks() >= 1ll << 31) return cudaErrorInvalidConfiguration;
    return Launch(blocks(), threads, 0, stream).run(kernel, c, tiles, sink);
}

// @AnyTaps deps: DepthwiseTiles, add_taps, bring_taps, give_places
// Any filters: so many taps at a time.
template <typename Tile, typename T, int kLanes, typename Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kResident)
    any_depthwise_kernel(const __grid_constant__ Depthwise c, const DepthwiseTiles tiles,
                         const EpilogueStore<Epilogue> sink) {
    constexpr int kChannels = Tile::kTeam * kLanes, kPitch = kChannels + kLanes;
    __shared__ __align__(16) float weights[Tile::kTaps][kPitch];
    __shared__ __align__(16) float kept[Tile::kColumns][Tile::kThreads][kLanes];
    const uint32_t group = tiles.chunks.quotient(uint32_t(blockIdx.x));
    const int64_t first = (blockIdx.x - group * uint32_t(tiles.chunks.by)) * kChannels;
    const int member = int(threadIdx.x) % Tile::kTeam * kLanes;
    const int64_t teams = blockDim.x / Tile::kTeam, channel = first + member;
    const int64_t tile = group * teams + threadIdx.x / Tile::kTeam, taps = c.num_taps();
    const bool exists = tile < tiles.count && channel < c.channels;
    const DepthwisePlace p = tiles.place(c, exists ? tile : 0, 1, Tile::kColumns);
    const auto* x = static_cast<const T*>(c.x) + p.image * c.image_step + channel / c.multiplier;
    const auto* own = reinterpret_cast<const float(*)[kPitch]>(&weights[0][member]);
    float sums[Tile::kColumns][kLanes] = {};
    for (int64_t tap = 0; tap < taps; tap += Tile::kTaps) {
        const auto* weight = static_cast<const T*>(c.weight) + first * taps + tap;
        const int count = int(taps - tap < Tile::kTaps ? taps - tap : Tile::kTaps);
        __syncthreads();  // all have used those before
        bring_taps<Tile::kTaps, kChannels, Tile::kThreads>(weights, weight, int(taps), count,
                                                           c.channels - first);
        __syncthreads();
        if (exists) add_taps(c, x, p.corner, int(tap), int(tap) + count, own, sums);
    }
    if (!exists) return;
#pragma unroll
    for (int i = 0; i < Tile::kColumns * kLanes; ++i)
        kept[i / kLanes][threadIdx.x][i % kLanes] = sums[i / kLanes][i % kLanes];
    give_places<1, Tile::kColumns>(c, p, channel, kept, sink);
}
struct AnyTaps {
    static constexpr int kTaps = 32, kRows = 1, kColumns = 4;
    static constexpr int kTeam = 32, kThreads = 128, kResident = 4;

    static bool takes(const Depthwise&) { return true; }
    template <typename T, int kLanes, typename Epilogue>
    static auto kernel() {
        return any_depthwise_kernel<AnyTaps, T, kLanes, Epilogue>;
    }
};

// @launch_depthwise_tiles deps: AnyTaps, Depthwise, EpilogueStore, is_aligned, launch_depthwise
// Makes a convolution of T's as `Tiles` where they take it, else as AnyTaps, and hands its values,
// float32, to the sink, 1 or 2 neighbouring channels at a time. Returns a CUDA error code.
template <typename T, int kLanes>
static bool is_packed(const Depthwise& c) {
    bool packed = c.multiplier == 1 && c.channels % kLanes == 0 && c.image_step % kLanes == 0;
    for (int64_t step : c.step) packed = packed && step % kLanes == 0;
    return packed && is_aligned<kLanes>(static_cast<const T*>(c.x));
}
template <typename Tiles, typename T, typename Epilogue>
static int launch_depthwise_tiles(const Depthwise& c, const EpilogueStore<Epilogue>& sink,
                                  cudaStream_t stream) {
    constexpr int kLanes = Epilogue::kLanes > 1 ? 2 : 1;
    if (!c.is_near()) return cudaErrorInvalidValue;
    const auto run = [&](auto tiles, auto lanes) {
        return launch_depthwise<decltype(tiles), lanes>(tiles.template kernel<T, lanes, Epilogue>(),
                                                        c, sink, stream);
    };
    const bool packed = is_packed<T, kLanes>(c) && (sink.paired || kLanes == 1);
    if (Tiles::takes(c) && packed) return run(Tiles(), std::integral_constant<int, kLanes>());
    return run(AnyTaps(), std::integral_constant<int, 1>());
}

// @depthwise deps: launch_depthwise_tiles
// As launch_depthwise_tiles, with `epilogue(at, values)` and the rest as in a product; `conv` is a
// Depthwise.
template <typename Tiles, typename T, typename Epilogue>
static int depthwise(const void* conv, const Epilogue& epilogue, int64_t max_offset, bool aligned,
                     void* stream) {
    constexpr int64_t kFar = 1ll << 31;  // from here on 32-bit positions would wrap round
    const auto& c = *static_cast<const Depthwise*>(conv);
    const int64_t extent = c.num_places() * c.channels;
    const bool narrow = extent < kFar && max_offset < kFar;
    const auto sink = EpilogueStore<Epilogue>::of(epilogue, narrow, aligned, extent);
    if (extent == 0) return 0;
    return launch_depthwise_tiles<Tiles, T>(c, sink, static_cast<cudaStream_t>(stream));
}

}  // namespace op
