// Convolutions on Hopper's tensor cores: the kernel of matrix products over packed operands
// (contract_sm90.cuh), with pixels of the input packed once, whatever windows show them. The tensor
// memory accelerator fetches the windows of 128 output pixels at one tap (its im2col mode).
//
// packed input: [image][pixel][chunk][64], scales [image][interval of channels][pixel]
// packed filters: [filter][tap][chunk][64], scales [filter]; what a chunk holds stands at Chunks.
// k has intervals (tap, 64 channels).

namespace op {

// @copy_windows deps: Barrier, tensor_map_header
// The pixels that output pixels from a corner on see at one tap, `offset` from the corner; zeros
// outside the image. kSpace axes of space.
template <int kSpace>
OPWELD_FN void copy_windows(void* to, const CUtensorMap* map, const Barrier& barrier, int channel,
                            const int (&corner)[3], int image, const int (&offset)[3]) {
    const auto at = [&](int axis) { return uint16_t(offset[axis]); };
    if constexpr (kSpace == 3) {
        asm volatile(
            "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};" ::"r"(shared_address(to)),
            "l"(map), "r"(barrier.at()), "r"(channel), "r"(corner[2]), "r"(corner[1]),
            "r"(corner[0]), "r"(image), "h"(at(2)), "h"(at(1)), "h"(at(0))
            : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(shared_address(to)),
            "l"(map), "r"(barrier.at()), "r"(channel), "r"(corner[2]), "r"(corner[1]), "r"(image),
            "h"(at(2)), "h"(at(1))
            : "memory");
    }
}

// @make_window_map deps: Convolution, PackedOperands, tensor_map_header
// The map of packed pixels, `from.row` values each.
template <int kSpace>
static int make_window_map(CUtensorMap* map, const PackedOperand& from, const Convolution& c,
                           int box_rows) {
    static PFN_cuTensorMapEncodeIm2col_v12000 encode = nullptr;
    if (!encode) {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result;
        const cudaError_t error = cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeIm2col", &found, 12000, cudaEnableDefault, &result);
        if (error != cudaSuccess || !found) return cudaErrorNotSupported;
        encode = reinterpret_cast<PFN_cuTensorMapEncodeIm2col_v12000>(found);
    }
    // From the innermost axis on: channels, the axes of space, images.
    cuuint64_t sizes[kSpace + 2] = {cuuint64_t(from.depth)}, strides[kSpace + 1];
    cuuint32_t steps[kSpace + 2] = {1};
    int lower[kSpace], upper[kSpace];
    cuuint64_t stride = cuuint64_t(from.row) * 2;
    for (int i = 0; i < kSpace; ++i) {
        const int axis = 2 - i;
        sizes[i + 1] = cuuint64_t(c.size[axis]);
        strides[i] = stride;
        stride *= cuuint64_t(c.size[axis]);
        steps[i + 1] = cuuint32_t(c.stride[axis]);
        lower[i] = -c.padding[axis];
        // such that the corners are those of the output pixels
        upper[i] = (c.out[axis] - 1) * c.stride[axis] - c.padding[axis] + 1 - c.size[axis];
    }
    sizes[kSpace + 1] = cuuint64_t(c.batches);
    strides[kSpace] = stride;
    steps[kSpace + 1] = 1;
    const CUresult result =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, kSpace + 2, const_cast<void*>(from.data), sizes,
               strides, lower, upper, 64, cuuint32_t(box_rows), steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// @Taps deps:
// Goes through the intervals of k: taps, the last axis of space first, and channels of each.
struct Taps {
    int of_channels;  // intervals of channels
    int interval, tap, at[3];

    __device__ __forceinline__ Taps(const int (&kernel)[3], int of_channels, int first)
        : of_channels(of_channels), interval(first % of_channels), tap(first / of_channels) {
        int rest = tap;
#pragma unroll
        for (int axis = 2; axis > 0; --axis) {
            at[axis] = rest % kernel[axis];
            rest /= kernel[axis];
        }
        at[0] = rest;
    }
    // Whether a tap begins.
    __device__ __forceinline__ bool advance(const int (&kernel)[3]) {
        if (++interval < of_channels) return false;
        interval = 0, ++tap;
        if (++at[2] < kernel[2]) return true;
        at[2] = 0;
        if (++at[1] < kernel[1]) return true;
        at[1] = 0, ++at[0];
        return true;
    }
};

// @PixelScales deps: Corner, Taps, Drowned, Sums, TileScales
// The scales of what two output pixels, 8 apart, see in one interval of k after the other.
struct PixelScales {
    static constexpr int kMostTaps = 64;
    struct Pixel {
        int begin;       // of the scale that its corner would have in the first interval
        uint64_t shown;  // by tap: it is inside the image
        float largest;

        __device__ __forceinline__ Pixel() : begin(0), shown(0), largest(0.0f) {}
        __device__ __forceinline__ Pixel(const Convolution& c, const int (&kernel)[3],
                                         int of_channels, const Corner<int>& corner)
            : Pixel() {
            const int* at = corner.at;
            begin = corner.image * of_channels * int(c.pixels()) +
                    (at[0] * c.size[1] + at[1]) * c.size[2] + at[2];
            const uint64_t wide = inside(c, kernel, 2, at[2]);
            uint64_t high = 0;
            for (int h = 0, y = at[1]; h < kernel[1]; ++h, y += c.dilation[1]) {
                if (unsigned(y) < unsigned(c.size[1])) high |= wide << h * kernel[2];
            }
            for (int d = 0, z = at[0]; d < kernel[0]; ++d, z += c.dilation[0]) {
                if (unsigned(z) < unsigned(c.size[0])) shown |= high << d * kernel[1] * kernel[2];
            }
        }
        // By position of the kernel along an axis.
        static __device__ __forceinline__ uint64_t inside(const Convolution& c,
                                                          const int (&kernel)[3], int axis,
                                                          int at) {
            uint64_t found = 0;
            for (int i = 0; i < kernel[axis]; ++i, at += c.dilation[axis]) {
                found |= uint64_t(unsigned(at) < unsigned(c.size[axis])) << i;
            }
            return found;
        }
        __device__ __forceinline__ float scale(const float* scales, int tap, int offset) {
            const float found = shown >> tap & 1 ? __ldg(scales + begin + offset) : 0.0f;
            largest = fmaxf(largest, found);
            return found;
        }
    };
    const Convolution& c;
    const int (&kernel)[3];
    const float* scales;
    Taps taps;
    Pixel upper, lower;

    __device__ __forceinline__ void next(float& of_upper, float& of_lower) {
        const int* at = taps.at;
        const int of_tap = (at[0] * c.dilation[0] * c.size[1] + at[1] * c.dilation[1]) * c.size[2] +
                           at[2] * c.dilation[2];
        const int offset = of_tap + taps.interval * int(c.pixels());
        of_upper = upper.scale(scales, taps.tap, offset);
        of_lower = lower.scale(scales, taps.tap, offset);
        taps.advance(kernel);
    }
    // Where digits were lost: whether they count in the sums.
    template <int kParts, int kTileN, int kPiece>
    __device__ __forceinline__ void check(const Sums<kTileN, kPiece>& sums,
                                          const TileScales& scales, const TileAt&, int64_t) const {
        if (!scales.call->lossy) return;
        Drowned<kParts> cancelled;
#pragma unroll
        for (int piece = 0; piece < sums.kPieces; ++piece) {
#pragma unroll
            for (int i = 0; i < kPiece / 2; ++i) {
                cancelled.add(sums.value[piece][i], i / 2 % 2 ? lower.largest : upper.largest);
            }
        }
        cancelled.tell(scales.call);
    }
};

// @AllTaps deps: Convolution, TileGrid
// The taps that a tile sums, and how far they are from the corners of windows.
using Kernel = int[3];
struct AllTaps {
    __device__ __forceinline__ const Kernel& kernel(const Convolution& c, const TileAt&) const {
        return c.kernel;
    }
    __device__ __forceinline__ int shift(const TileAt&, int) const { return 0; }
};

// @WindowLoader deps: AllTaps, PackedOperands, PixelScales, Tiles, TileScales, Ring, cluster, copy_tile, copy_windows, make_tensor_map, make_window_map, prefetch_map, tile_at
// Loads tiles of windows and of packed filters, as PackedLoader does those of two matrices.
template <int kSpace, typename TapsOf = AllTaps>
struct WindowLoader {
    CUtensorMap a, b;
    Convolution c;
    int of_channels;  // intervals of channels
    TapsOf taps_of;

    template <typename T>
    int open(const PackedOperands& from) {
        const int error = make_window_map<kSpace>(&a, from.a, c, T::kTileM);
        return error ? error : make_tensor_map(&b, from.b, T::kTileN / T::kBlocks);
    }
    __device__ __forceinline__ PixelScales row_scales(const TileGrid&, const TileScales& scales,
                                                      const TileAt& tile, int row,
                                                      int64_t rows) const {
        const int(&kernel)[3] = taps_of.kernel(c, tile);
        const auto pixel = [&](int row) {
            if (row >= rows) return PixelScales::Pixel();
            Corner<int> corner(c, row);
#pragma unroll
            for (int axis = 0; axis < 3; ++axis) corner.at[axis] += taps_of.shift(tile, axis);
            return PixelScales::Pixel(c, kernel, of_channels, corner);
        };
        return {c,          kernel,        scales.a, Taps(kernel, of_channels, tile.first),
                pixel(row), pixel(row + 8)};
    }
    template <typename T>
    __device__ __forceinline__ void fill(typename T::Memory& memory, const TileGrid& grid,
                                         const TileScales&) const {
        constexpr int kChunks = Chunks<typename T::Mode>::kPerInterval;
        constexpr int kPart = T::kTileN / T::kBlocks;
        const typename T::Blocks blocks;
        prefetch_map(&a);
        prefetch_map(&b);
        Ring<T::kStages> ring;
        ring.parity = 1;  // the ring is empty: the phase before the first counts as ended
        for (int index = cluster_index(); index < grid.count(); index += num_clusters()) {
            const TileAt tile = tile_at(*this, grid, index);
            const int(&kernel)[3] = taps_of.kernel(c, tile);
            const Corner<int> corner(c, (tile.row * T::kBlocks + blocks.rank) * T::kTileM);
            const int column = tile.column * T::kTileN + blocks.rank * kPart;
            Taps taps(kernel, of_channels, tile.first);
            const int first = tile.first * kChunks, last = tile.last * kChunks;
#pragma unroll 1  // the loader has few registers
            for (int chunk = first; chunk < last; ++chunk) {
                auto& stage = memory.stage[ring.stage];
                const Barrier& full = memory.full[ring.stage];
                const int offset[3] = {taps.at[0] * c.dilation[0] + taps_of.shift(tile, 0),
                                       taps.at[1] * c.dilation[1] + taps_of.shift(tile, 1),
                                       taps.at[2] * c.dilation[2] + taps_of.shift(tile, 2)};
                const int part = chunk % kChunks;
                memory.empty[ring.stage].wait(ring.parity);
                memory.full[ring.stage].expect(sizeof(stage.a) + sizeof(stage.b));
                copy_windows<kSpace>(stage.a, &a, full, (taps.interval * kChunks + part) * 64,
                                     corner.at, corner.image, offset);
                copy_tile<(T::kBlocks > 1)>(stage.b + blocks.rank * kPart * kChunkBytes, &b, full,
                                            chunk * 64, column, tile.batch, T::Blocks::kAll);
                if (part == kChunks - 1) taps.advance(kernel);
                ring.advance();
            }
        }
    }
};

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

    // What the copy engine, masks of taps and 32-bit places take.
    static bool takes(const Convolution& c) {
        constexpr int kFar = kSpace == 3 ? 16 : 128;
        constexpr int64_t kMost = 1ll << 30;
        bool near = c.taps() <= PixelScales::kMostTaps && reaches(c);
        for (int i = 0; i < 3; ++i) {
            const int upper = (c.out[i] - 1) * c.stride[i] - c.padding[i] + 1 - c.size[i];
            near = near && c.padding[i] <= kFar && c.padding[i] > -kFar && upper >= -kFar &&
                   upper < kFar && c.stride[i] <= 8;
        }
        return near && c.batches * c.pixels() * interval_count(c.channels) < kMost &&
               c.batches * c.places() < kMost;
    }
    // Its offsets.
    static bool reaches(const Convolution& c) {
        constexpr int kFar = kSpace == 3 ? 16 : 128;
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
        if (error) return error;
        const int* again = &call.pixels.head->again;
        error = in_parts(sink, call.splits, call.parts, again, stream, [&](const auto& to) {
            return launch_all(c, AllTaps(), 1, call.pixels, call.filters, call.splits, to, stream);
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
        WindowLoader<kSpace, TapsOf> loader{{}, {}, c, int(pixels.of_channels), taps_of};
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
