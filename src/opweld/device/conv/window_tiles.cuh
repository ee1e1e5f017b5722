// Convolutions on Hopper's tensor cores, from their operands in memory on: how filters and pixels
// are packed, and tiles of windows (im2col.cuh) launched.

namespace op {

// @PackedFilters deps: Workspace, half_header, kInterval
// Filters as rows of k = (tap, channel), each under a scale of its own, and what is known of them.
struct PackedFilters {
    half* packed;
    float* scale;
    int* known;

    // For `rows` of packed channels: all taps of all filters.
    template <int kParts>
    static PackedFilters take(int64_t channels, int64_t rows, int64_t filters, Workspace& space) {
        return {space.take<half>(rows * interval_count(channels) * (kParts * kInterval)),
                space.take<float>(filters), space.take<int>(filters)};
    }
};

// @pack_filter deps: PackedFilters, exponents, pack_values
// A filter in memory, [channel][tap].
struct Filter {
    const float* data;
    int64_t channels, taps;

    __device__ __forceinline__ int64_t count() const { return channels * taps; }
    __device__ __forceinline__ float any(int64_t i) const { return data[i]; }  // in some order
    __device__ __forceinline__ float at(int64_t channel, int64_t tap) const {
        return data[channel * taps + tap];
    }
};
// A block packs a filter, of so many channels and taps, as a row that begins at `to`, and notes
// what is known of it under the number `filter`.
template <int kParts, typename From>
OPWELD_FN void pack_filter(const From& from, int64_t channels, int64_t taps, half* to,
                           const PackedFilters& filters, int64_t filter) {
    __shared__ uint32_t most;
    __shared__ int excess;
    const int64_t pitch = interval_count(channels) * kInterval;  // channels of a tap
    if (threadIdx.x == 0) most = 0, excess = 0;
    __syncthreads();
    uint32_t own = 0;
    for (int64_t i = threadIdx.x; i < from.count(); i += 256) {
        own = max(own, __float_as_uint(from.any(i)) & 0x7FFFFFFFu);
    }
    atomicMax(&most, own);
    __syncthreads();
    const float largest = __uint_as_float(most);
    const int up = lift(exponent_of(largest));
    int lost = 0;
    for (int64_t place = threadIdx.x * 4; place < taps * pitch; place += 256 * 4) {
        const int64_t tap = place / pitch, channel = place - tap * pitch;
        Four v{};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (channel + i < channels) v.x[i] = from.at(channel + i, tap);
        }
        const Four lifted = scaled(v, power_of_two(up));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (lifted.x[i] != 0.0f) lost += fabsf(lifted.x[i]) < kLeastKept<kParts> ? 15 : -1;
        }
        put_parts<kParts>(to, place, lifted);
    }
    atomicAdd(&excess, lost);
    __syncthreads();
    if (threadIdx.x) return;
    filters.scale[filter] = largest == 0.0f ? 0.0f : power_of_two(-up);
    filters.known[filter] =
        (excess > 0 ? kLosesDigits : 0) | (is_in_range(largest) ? 0 : kDoesNotFit);
}

// @pack_filters_kernel deps: Convolution, CallState, pack_filter, start_dependents
// A block packs a filter. The call's state begins here; what is known of filters is added to it by
// the kernel that packs the input, which may start at once.
template <int kParts>
static __global__ void __launch_bounds__(256)
    pack_filters_kernel(const Convolution c, const PackedFilters filters, CallHead* call) {
    start_dependents();
    const int64_t number = blockIdx.x, taps = c.taps();
    if (number == 0 && threadIdx.x == 0) *call = {};
    const auto* all = static_cast<const float*>(c.weight);
    const Filter own{all + number * c.channels * taps, c.channels, taps};
    const int64_t row = taps * interval_count(c.channels) * (kParts * kInterval);
    pack_filter<kParts>(own, c.channels, taps, filters.packed + number * row, filters, number);
}

// @pack_pixels_kernel deps: PackedFilters, PlainColumns, dependents, split_spot, tell_call
// Packs the channels of pixels, as split_kernel does rows of an operand.
template <int kParts, typename Source>
static __global__ void __launch_bounds__(256)
    pack_pixels_kernel(const Source source, const Operand x, const Spots spots,
                       const PackedFilters filters, const int num_filters, half* packed,
                       float* scale, CallHead* call, const bool packets) {
    start_dependents();
    int known =
        split_spot<kParts>(source, x, spots, PlainColumns(), packed, scale, spots.rows, packets);
    griddepcontrol_wait();  // for the filters, and the call's state
    if (blockIdx.x == 0) {
        for (int i = threadIdx.x; i < num_filters; i += 256) known |= filters.known[i];
    }
    tell(call, known);
}

// @parts_of_windows deps: num_multiprocessors
// In how many parts k is summed: microseconds of an H100 (2026-11-26), as those of TilePlan.
template <typename T>
static int parts_of_windows(int64_t rows, int64_t filters, int64_t intervals) {
    const double interval_us = (T::Mode::kParts == 2 ? 3 : 1) * (T::kTileN == 64 ? 0.83 : 0.46);
    const double ends_us = T::kTileN == 64 ? 2.0 : 4.5, bytes = double(rows) * double(filters) * 8;
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

// @WindowTiles deps: Convolution, TensorView, InMemory, Launch, PackedFilters, SplitSums, TileGrid, WindowLoader, Windows, Workspace, in_parts, launch_fma_product, launch_tiles, pack_filters_kernel, pack_pixels_kernel, parts_of_windows, product_of_windows, reads_packets
// A convolution of float32 over kSpace axes, by the tensor cores, in tiles of kColumns filters;
// what does not fit the packed form is left to the float32 kernel.
template <typename ModeOf, int kSpace, int kColumns>
struct WindowTiles {
    using Mode = ModeOf;
    // Where 64 columns leave room for it two blocks share a multiprocessor: one ends its tile while
    // the other sums. Pairs of wider ones share what they read of the filters.
    static constexpr int kPromoted = Mode::kParts == 2 ? 32 : 64;
    using T = std::conditional_t<kColumns == 64, Tiles<Mode, 64, 1, 3, kPromoted, 2>,
                                 Tiles<Mode, 128, 2, 6, kPromoted>>;
    // The packed input, and what the kernels tell each other.
    struct Pixels {
        int64_t of_channels;
        CallHead* head;
        half* packed;
        float* scales;

        static Pixels take(const Convolution& c, Workspace& space) {
            const int64_t of_channels = interval_count(c.channels);
            const int64_t all = c.batches * c.pixels() * of_channels;
            return {of_channels, space.take<CallHead>(1),
                    space.take<half>(all * (Mode::kParts * kInterval)), space.take<float>(all)};
        }
    };
    struct Call {
        Pixels pixels;
        PackedFilters filters;
        int splits;
        float* parts;
        int64_t bytes;

        Call(const Convolution& c, void* workspace) {
            Workspace space{static_cast<char*>(workspace)};
            pixels = Pixels::take(c, space);
            filters = PackedFilters::take<Mode::kParts>(c.channels, c.filters * c.taps(), c.filters,
                                                        space);
            const int64_t rows = c.batches * c.places();
            splits = parts_of_windows<T>(rows, c.filters, c.taps() * pixels.of_channels);
            parts = space.take<float>(splits > 1 ? splits * rows * c.filters : 0);
            bytes = space.used;
        }
    };

    // Where corners of the copy engine end; its offsets are from 0 to below twice as far.
    static constexpr int kFar = kSpace == 3 ? 16 : 128;

    // What the copy engine, masks of taps and 32-bit places take.
    static bool takes(const Convolution& c) {
        constexpr int64_t kMost = 1ll << 30;
        bool near = c.taps() <= PixelScales::kMostTaps && has_offsets_of(c);
        for (int i = 0; i < 3; ++i) {
            const int upper = (c.out[i] - 1) * c.stride[i] - c.padding[i] + 1 - c.size[i];
            near = near && c.padding[i] <= kFar && c.padding[i] > -kFar && upper >= -kFar &&
                   upper < kFar && c.stride[i] <= 8;
        }
        return near && c.batches * c.pixels() * interval_count(c.channels) < kMost &&
               c.batches * c.places() < kMost;
    }
    static bool has_offsets_of(const Convolution& c) {
        bool near = true;
        for (int i = 0; i < 3; ++i) near = near && (c.kernel[i] - 1) * c.dilation[i] < 2 * kFar;
        return near;
    }
    static constexpr bool kChannelsLast = false;
    static bool fits(int64_t channels, const TensorView& weight) {
        return weight.sizes[1] == channels;
    }
    static int64_t workspace_bytes(const Convolution& c) {
        return takes(c) ? Call(c, nullptr).bytes : 0;
    }

    // Behind the kernel that packs filters, of which there are `num_filters`.
    static int pack_pixels(const Convolution& c, const Pixels& pixels, const PackedFilters& filters,
                           int64_t num_filters, cudaStream_t stream) {
        const Operand x{c.x, c.batch, c.pixel, c.channel};
        const Spots spots{c.batches, c.pixels(), c.channels, pixels.of_channels};
        const InMemory<float> source{static_cast<const float*>(c.x)};
        Launch launch(spots.count(), 256, 0, stream);
        launch.start_early();
        return launch.run(pack_pixels_kernel<Mode::kParts, InMemory<float>>, source, x, spots,
                          filters, int(num_filters), pixels.packed, pixels.scales, pixels.head,
                          reads_packets<float>(x));
    }
    template <typename Epilogue>
    static int launch(const Convolution& c, void* workspace, const EpilogueStore<Epilogue>& sink,
                      cudaStream_t stream) {
        if (!takes(c)) {
            return launch_fma_product<float>(product_of_windows(c), Windows{c}, sink, nullptr,
                                             stream);
        }
        const Call call(c, workspace);
        int error = Launch(c.filters, 256, 0, stream)
                        .run(pack_filters_kernel<Mode::kParts>, c, call.filters, call.pixels.head);
        if (!error) error = pack_pixels(c, call.pixels, call.filters, c.filters, stream);
        return error ? error : multiply(c, call, c, sink, stream);
    }
    // What is packed of `packed`; the float32 kernel, of `c`, where halves do not have its values.
    template <typename Epilogue>
    static int multiply(const Convolution& packed, const Call& call, const Convolution& c,
                        const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        const int* again = &call.pixels.head->again;
        const int error =
            in_parts(sink, call.splits, call.parts, again, stream, [&](const auto& to) {
                return launch_all(packed, AllTaps(), 1, call.pixels, call.filters, call.splits, to,
                                  stream);
            });
        if (error) return error;
        return launch_fma_product<float>(product_of_windows(c), Windows{c}, sink, again, stream);
    }
    // The tiles of `batches` products of packed operands, which sum what `taps_of` says.
    template <typename TapsOf, typename Epilogue>
    static int launch_all(const Convolution& c, const TapsOf& taps_of, int batches,
                          const Pixels& pixels, const PackedFilters& filters, int splits,
                          const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        constexpr int64_t kHeight = T::kTileM * T::kBlocks;
        const int64_t pitch = pixels.of_channels * (Mode::kParts * kInterval);
        const int64_t depth = c.taps() * pitch, rows = c.batches * c.places();
        const PackedOperands from{
            {pixels.packed, 1, 0, c.batches * c.pixels(), pitch, pitch},
            {filters.packed, batches, c.filters * depth, c.filters, depth, depth},
            c.taps() * pixels.of_channels,
            c.pixels(),
            pixels.scales,
            filters.scale,
            pixels.head};
        WindowLoader<kSpace, TapsOf> loader(c, int(pixels.of_channels), taps_of);
        const int error = loader.template open<T>(from);
        if (error) return error;
        const auto grid = TileGrid::of(int((rows + kHeight - 1) / kHeight),
                                       int((c.filters + T::kTileN - 1) / T::kTileN), splits,
                                       batches, int(from.intervals));
        const TileScales scales{from.a_scale, from.b_scale, from.scale_rows, 0,
                                batches > 1,  from.call};
        return launch_tiles<T>(grid, loader, scales, sink, rows, c.filters, stream);
    }
};

}  // namespace op
