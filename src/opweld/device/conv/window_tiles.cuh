// Convolutions on Hopper's tensor cores, from their operands in memory on: how filters and pixels
// are packed, and tiles of windows (im2col.cuh) launched.

namespace op {

// @PackedFilters deps: Workspace, half_header, kInterval
// Filters as rows of k = (tap, channel), each under a scale of its own, in intervals of kWidth
// channels.
struct PackedFilters {
    half* packed;
    float* scale;

    // For `rows` of packed channels: all taps of all filters.
    template <int kParts, int kWidth>
    static PackedFilters take(int64_t channels, int64_t rows, int64_t filters, Workspace& space) {
        return {space.take<half>(rows * interval_count(channels, kWidth) * (kParts * kWidth)),
                space.take<float>(filters)};
    }
};

// @pack_filter deps: Convolution, PackedFilters, exponents, pack_values
// A block packs the filter of this number, among those of all products.
template <int kParts, int kWidth, typename TapsOf>
OPWELD_FN void pack_filter(const Convolution& c, const TapsOf& taps_of,
                           const PackedFilters& filters, int64_t number) {
    __shared__ uint32_t most;
    __shared__ int excess;
    const int batch = int(number / c.filters), column = int(number - batch * c.filters);
    const int channels = int(taps_of.channels(c));
    const auto& kernel = taps_of.kernel(c, batch);
    const int taps = kernel[0] * kernel[1] * kernel[2];
    const int pitch = int(interval_count(channels, kWidth)) * kWidth;  // channels of a tap
    const float* const from = taps_of.filter(c, number);
    const auto weight = [&](int channel, int tap) {
        const int64_t place = taps_of.place_in_filter(c, batch, column, channel, tap);
        return place < 0 ? 0.0f : from[place];
    };
    if (threadIdx.x == 0) most = 0, excess = 0;
    __syncthreads();
    uint32_t own = 0;
    for (int i = threadIdx.x; i < channels * taps; i += 256) {
        const int channel = i / taps;
        own = max(own, __float_as_uint(weight(channel, i - channel * taps)) & 0x7FFFFFFFu);
    }
    atomicMax(&most, own);
    __syncthreads();
    const float largest = __uint_as_float(most);
    const int up = lift(exponent_of(largest));
    half* const to = filters.packed + number * c.taps() * pitch * kParts;
    int lost = 0;
    for (int place = threadIdx.x * 4; place < taps * pitch; place += 256 * 4) {
        const int tap = place / pitch, channel = place - tap * pitch;
        Four v{};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (channel + i < channels) v.x[i] = weight(channel + i, tap);
        }
        const Four lifted = scaled(v, power_of_two(up));
        lost += excess_of<kParts>(lifted);
        put_parts<kParts>(to, place, lifted);
    }
    atomicAdd(&excess, lost);
    __syncthreads();
    if (threadIdx.x) return;
    filters.scale[number] = packed_scale(largest, up, excess > 0);
}

// @PixelsOf deps: Convolution, InMemory, PlainColumns, reads_packets, split_spot
// How the input is packed, the channels of pixels as the rows of an operand: by so many blocks.
template <int kWidth>
struct PixelsOf {
    InMemory<float> source;
    Operand x;
    SpotsOf<kWidth> spots;
    bool packets;

    explicit PixelsOf(const Convolution& c)
        : source{static_cast<const float*>(c.x)},
          x{c.x, c.batch, c.pixel, c.channel},
          spots{c.batches, c.pixels(), c.channels, interval_count(c.channels, kWidth)},
          packets(reads_packets<float>(x)) {}
    int64_t num_blocks() const { return spots.count(); }
    template <int kParts>
    __device__ __forceinline__ void pack(int64_t block, half* packed, float* scales) const {
        split_spot<kParts>(source, x, spots, PlainColumns(), packed, scales, spots.rows, packets,
                           block);
    }
};

// @pack_operands_kernel deps: pack_filter, start_dependents
// Packs both operands of a convolution: one block per filter, then those of the input.
template <int kParts, int kWidth, typename TapsOf, typename Pixels>
static __global__ void __launch_bounds__(256)
    pack_operands_kernel(const __grid_constant__ Convolution c,
                         const __grid_constant__ TapsOf taps_of,
                         const __grid_constant__ Pixels pixels, const PackedFilters filters,
                         const int num_filters, half* packed, float* scales) {
    start_dependents();
    const int block = int(blockIdx.x) - num_filters;
    if (block < 0) pack_filter<kParts, kWidth>(c, taps_of, filters, blockIdx.x);
    else pixels.template pack<kParts>(block, packed, scales);
}

// @parts_of_windows deps: num_multiprocessors
// In how many parts k is summed: microseconds of an H200 (2026-11-28), as those of TilePlan.
template <typename T>
static int parts_of_windows(int64_t rows, int64_t filters, int64_t intervals) {
    const double interval_us = (T::Mode::kParts == 2 ? 3 : 1) * (T::kTileN == 64 ? 0.70 : 0.46) *
                               (0.55 + 0.45 * T::kWidth / kInterval);
    const double ends_us = T::kTileN == 64 ? 3.5 : 5.0, bytes = double(rows) * double(filters) * 8;
    const int64_t height = T::kTileM * T::kBlocks, slots = num_multiprocessors() * T::kResident;
    const int64_t tiles =
        (rows + height - 1) / height * T::kBlocks * ((filters + T::kTileN - 1) / T::kTileN);
    int best = 1;
    double least = 1e30;
    for (int splits = 1; splits <= 8 && (splits == 1 || splits * 4 <= intervals); ++splits) {
        const int64_t turns = (tiles * splits + slots - 1) / slots;
        double time = turns * ((intervals + splits - 1) / splits * interval_us + ends_us);
        // parts are written, read and combined: at about 3 TB/s
        if (splits > 1) time += 5.0 + splits * bytes / 3e6;
        if (time < least * 0.99) best = splits, least = time;
    }
    return best;
}

// @WindowTiles deps: ConvolutionForm, Launch, PackedFilters, PixelsOf, SplitSums, TileGrid, WindowLoader, Windows, Workspace, in_parts, launch_fma_product, launch_tiles, pack_operands_kernel, parts_of_windows, product_of_windows
// A convolution of float32 over kSpace axes, by the tensor cores, in tiles of kColumns filters and
// intervals of kWidth channels; what the copy engine does not take is left to the float32 kernel.
template <typename ModeOf, int kSpace, int kColumns, int kWidthOf = kInterval>
struct WindowTiles : ConvolutionForm {
    using Mode = ModeOf;
    static constexpr int kWidth = kWidthOf;
    // Where 64 columns leave room for it two blocks share a multiprocessor: one ends its tile while
    // the other sums. Pairs of wider ones share what they read of the filters.
    // Stages of narrow intervals are smaller, and more: as many bytes are under way.
    static constexpr int kPromoted = Mode::kParts == 2 ? 32 : kWidth, kMore = kInterval / kWidth;
    using T =
        std::conditional_t<kColumns == 64, Tiles<Mode, 64, 1, 3 * kMore, kPromoted, 2, kWidth>,
                           Tiles<Mode, 128, 2, 6 * kMore, kPromoted, 1, kWidth>>;
    // The packed input.
    struct Pixels {
        int64_t of_channels;
        half* packed;
        float* scales;

        static Pixels take(const Convolution& c, Workspace& space) {
            const int64_t of_channels = interval_count(c.channels, kWidth);
            const int64_t all = c.batches * c.pixels() * of_channels;
            return {of_channels, space.take<half>(all * (Mode::kParts * kWidth)),
                    space.take<float>(all)};
        }
    };
    struct Call {
        Pixels pixels;
        PackedFilters filters;
        int splits;
        float* parts;
        int64_t bytes;

        // A filter sees so many `channels`.
        Call(const Convolution& c, int64_t channels, void* workspace) {
            Workspace space{static_cast<char*>(workspace)};
            pixels = Pixels::take(c, space);
            filters = PackedFilters::take<Mode::kParts, kWidth>(channels, c.filters * c.taps(),
                                                                c.filters, space);
            const int64_t rows = c.batches * c.places();
            splits =
                parts_of_windows<T>(rows, c.filters, c.taps() * interval_count(channels, kWidth));
            parts = space.take<float>(splits > 1 ? splits * rows * c.filters : 0);
            bytes = space.used;
        }
    };

    // Where corners of the copy engine end; its offsets are from 0 to below twice as far.
    static constexpr int kFar = kSpace == 3 ? 16 : 128;

    // What the copy engine, masks of taps and 32-bit places take.
    static bool takes(const Convolution& c) {
        constexpr int64_t kMost = 1ll << 30;
        const int along_axes = c.kernel[0] + c.kernel[1] + c.kernel[2];
        bool near = along_axes <= PixelScales::kMostAlongAxes && has_offsets_of(c);
        for (int i = 0; i < 3; ++i) {
            const int upper = (c.out[i] - 1) * c.stride[i] - c.padding[i] + 1 - c.size[i];
            near = near && c.padding[i] <= kFar && c.padding[i] > -kFar && upper >= -kFar &&
                   upper < kFar && c.stride[i] <= 8;
        }
        return near && c.batches * c.pixels() * interval_count(c.channels, kWidth) < kMost &&
               c.batches * c.places() < kMost;
    }
    static bool has_offsets_of(const Convolution& c) {
        bool near = true;
        for (int i = 0; i < 3; ++i) near = near && (c.kernel[i] - 1) * c.dilation[i] < 2 * kFar;
        return near;
    }
    static int64_t workspace_bytes(const Convolution& c) {
        return takes(c) ? Call(c, c.channels, nullptr).bytes : 0;
    }

    template <typename Epilogue>
    static int launch(const Convolution& c, void* workspace, const EpilogueStore<Epilogue>& sink,
                      cudaStream_t stream) {
        if (takes(c))
            return launch_packed(c, AllTaps(), PixelsOf<kWidth>(c), workspace, sink, stream);
        return launch_fma_product<float>(product_of_windows(c), Windows{c}, sink, nullptr, stream);
    }
    // What `taps_of` and `pixels_of` know of the operands in memory is packed as those of `c`.
    template <typename TapsOf, typename Packing, typename Epilogue>
    static int launch_packed(const Convolution& c, const TapsOf& taps_of, const Packing& pixels_of,
                             void* workspace, const EpilogueStore<Epilogue>& sink,
                             cudaStream_t stream) {
        const Call call(c, taps_of.channels(c), workspace);
        const int error = pack(c, taps_of, pixels_of, call.pixels, call.filters, c.filters, stream);
        if (error) return error;
        return in_parts(sink, call.splits, call.parts, nullptr, stream, [&](const auto& to) {
            return launch_all(c, taps_of, 1, call.pixels, call.filters, call.splits, to, stream);
        });
    }
    template <typename TapsOf, typename Packing>
    static int pack(const Convolution& c, const TapsOf& taps_of, const Packing& pixels_of,
                    const Pixels& pixels, const PackedFilters& filters, int64_t num_filters,
                    cudaStream_t stream) {
        return Launch(num_filters + pixels_of.num_blocks(), 256, 0, stream)
            .run(pack_operands_kernel<Mode::kParts, kWidth, TapsOf, Packing>, c, taps_of, pixels_of,
                 filters, int(num_filters), pixels.packed, pixels.scales);
    }
    // The tiles of `batches` products of packed operands.
    template <typename TapsOf, typename Epilogue>
    static int launch_all(const Convolution& c, const TapsOf& taps_of, int batches,
                          const Pixels& pixels, const PackedFilters& filters, int splits,
                          const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        constexpr int64_t kHeight = T::kTileM * T::kBlocks;
        const int64_t pitch = pixels.of_channels * (Mode::kParts * kWidth);
        const int64_t of_product = interval_count(taps_of.channels(c), kWidth);
        const int64_t depth = c.taps() * of_product * (Mode::kParts * kWidth);
        const int64_t rows = c.batches * c.places();
        const PackedOperands from{
            {pixels.packed, 1, 0, c.batches * c.pixels(), pitch, pitch},
            {filters.packed, batches, c.filters * depth, c.filters, depth, depth},
            c.taps() * of_product,
            c.pixels(),
            pixels.scales,
            filters.scale,
            nullptr};
        WindowLoader<kSpace, TapsOf, kWidth> loader(c, int(of_product), int(pixels.of_channels),
                                                    taps_of);
        const int error = loader.template open<T>(from);
        if (error) return error;
        const auto grid = TileGrid::of(int((rows + kHeight - 1) / kHeight),
                                       int((c.filters + T::kTileN - 1) / T::kTileN), splits,
                                       batches, int(from.intervals));
        const TileScales scales{from.a_scale, from.b_scale, from.scale_rows, 0,
                                batches > 1,  nullptr};
        return launch_tiles<T>(grid, loader, scales, sink, rows, c.filters, stream);
    }
};

}  // namespace op
