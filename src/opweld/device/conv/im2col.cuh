// Convolutions on Hopper's tensor cores: the kernel of matrix products over packed operands
// (contract_sm90.cuh), with pixels of the input packed once, whatever windows show them. The tensor
// memory accelerator fetches the windows of 128 output pixels at one tap (its im2col mode).
//
// packed input: [image][pixel][chunk][64], scales [image][interval of channels][pixel]
// packed filters: [filter][tap][chunk][64], scales [filter]; what a chunk holds stands at Chunks.
// k has intervals (tap, 64 channels); of few channels, 32 or 16, and chunks of as many. Scales are
// marked where halves may not do for what is under them; a warp that meets marks makes its part of
// a tile from the operands in memory.

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

// @make_window_map deps: Convolution, PackedOperands, swizzle_of, tensor_map_encoder
// The map of packed pixels, `from.row` values each, `width` of which are a row of a box.
template <int kSpace>
static int make_window_map(CUtensorMap* map, const PackedOperand& from, const Convolution& c,
                           int box_rows, int width) {
    static const auto encode =
        tensor_map_encoder<PFN_cuTensorMapEncodeIm2col_v12000>("cuTensorMapEncodeIm2col");
    if (!encode) return cudaErrorNotSupported;
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
               strides, lower, upper, cuuint32_t(width), cuuint32_t(box_rows), steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(width), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// @Taps deps:
// Goes through the intervals of k: taps, the last axis of space first, and channels of each.
struct Taps {
    int of_channels;  // intervals of channels
    int interval, tap, at[3];

    __device__ __forceinline__ Taps(const int (&kernel)[3], int of_channels, int first)
        : of_channels(of_channels), interval(0), tap(0), at{} {
        if (first == 0) return;
        interval = first % of_channels, tap = first / of_channels;
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

// @PixelScales deps: Corner, Taps, Drowned, Staging, Sums, own_thread, pack_values
// The scales of what two output pixels, 8 apart, see in one interval of k after the other.
struct PixelScales {
    static constexpr int kMostAlongAxes = 64;  // the sizes of a kernel together
    struct Pixel {
        int begin;       // of the scale that its corner would have in the first interval
        uint64_t shown;  // by position along each axis: it is inside the image
        float largest;

        __device__ __forceinline__ Pixel() : begin(0), shown(0), largest(0.0f) {}
        __device__ __forceinline__ Pixel(const Convolution& c, const int (&kernel)[3],
                                         int intervals, int first, const Corner<int>& corner)
            : Pixel() {
            const int* at = corner.at;
            begin = (corner.image * intervals + first) * int(c.pixels()) +
                    (at[0] * c.size[1] + at[1]) * c.size[2] + at[2];
#pragma unroll
            for (int axis = 0; axis < 3; ++axis) {
                shown |= inside(at[axis], kernel[axis], c.dilation[axis], c.size[axis])
                         << first_bit(kernel, axis);
            }
        }
        // By position along an axis.
        static __device__ __forceinline__ uint64_t inside(int at, int taps, int step, int size) {
            if (step == 1) {
                const int first = max(-at, 0), last = min(size - at, taps);
                return first < last ? ~uint64_t(0) >> (64 - (last - first)) << first : 0;
            }
            uint64_t found = 0;
            for (int i = 0; i < taps; ++i, at += step) {
                found |= uint64_t(unsigned(at) < unsigned(size)) << i;
            }
            return found;
        }
        __device__ __forceinline__ float load(const float* scales, uint64_t position,
                                              int offset) const {
            const bool exists = (shown & position) == position;
            return exists ? __ldg(scales + begin + offset) : 0.0f;
        }
    };
    const Convolution& c;
    const int (&kernel)[3];
    const float* scales;
    Taps taps;
    Pixel upper, lower;
    uint32_t marks;  // in the lowest bits

    // That of the first position along an axis, among those of Pixel::shown.
    static __device__ __forceinline__ int first_bit(const int (&kernel)[3], int axis) {
        return axis == 2 ? 0 : axis == 1 ? kernel[2] : kernel[2] + kernel[1];
    }
    __device__ __forceinline__ void next(float& of_upper, float& of_lower) {
        const int* at = taps.at;
        const int of_tap = (at[0] * c.dilation[0] * c.size[1] + at[1] * c.dilation[1]) * c.size[2] +
                           at[2] * c.dilation[2];
        const int offset = of_tap + taps.interval * int(c.pixels());
        uint64_t position = 0;
#pragma unroll
        for (int axis = 0; axis < 3; ++axis) {
            position |= uint64_t(1) << (first_bit(kernel, axis) + at[axis]);
        }
        of_upper = upper.load(scales, position, offset);
        of_lower = lower.load(scales, position, offset);
        taps.advance(kernel);
    }
    __device__ __forceinline__ void use(float& of_upper, float& of_lower) {
        marks |= __float_as_uint(of_upper) | __float_as_uint(of_lower);
        of_upper = unmarked(of_upper), of_lower = unmarked(of_lower);
        upper.largest = fmaxf(upper.largest, of_upper);
        lower.largest = fmaxf(lower.largest, of_lower);
    }
    // Whether halves do not do for a warp's sums, by the marks of its pixels and of its columns,
    // and where digits were lost by the sums themselves. Takes the marks off the scales of columns,
    // which float32 sums have none of.
    template <int kParts, int kTileN, int kPiece>
    __device__ __forceinline__ bool needs_fallback(const Sums<kTileN, kPiece>& sums,
                                                   Staging::OfWarp& space) const {
        const int lane = own_thread() % 32;
        uint32_t all = marks;
        for (int i = lane; i < kTileN; i += 32) all |= __float_as_uint(space.factor[i]);
        if (!__any_sync(~0u, all & kScaleMarks)) return false;
        const bool fallback = __any_sync(~0u, all & kDoesNotFit) || are_cancelled<kParts>(sums);
        for (int i = lane; i < kTileN; i += 32) {
            space.factor[i] = fallback ? 1.0f : unmarked(space.factor[i]);
        }
        return fallback;
    }
    template <int kParts, int kTileN, int kPiece>
    __device__ __forceinline__ bool are_cancelled(const Sums<kTileN, kPiece>& sums) const {
        Drowned<kParts> cancelled;
#pragma unroll
        for (int piece = 0; piece < sums.kPieces; ++piece) {
#pragma unroll
            for (int i = 0; i < kPiece / 2; ++i) {
                cancelled.add(sums.value[piece][i], i / 2 % 2 ? lower.largest : upper.largest);
            }
        }
        return cancelled.are_many();
    }
};

// @AllTaps deps: value_at
// What the tiles of product `batch` sum: taps, how far they are from the corners of windows, and
// the values of both operands in memory.
using TapCounts = int[3];  // along each axis
struct AllTaps {
    static constexpr int kOfFilter = 1;  // columns
    // The channels of a product, and the first interval of those of a column.
    __host__ __device__ __forceinline__ int64_t channels(const Convolution& c) const {
        return c.channels;
    }
    __device__ __forceinline__ int first_interval(int, int) const { return 0; }
    __device__ __forceinline__ const TapCounts& kernel(const Convolution& c, int) const {
        return c.kernel;
    }
    __device__ __forceinline__ int shift(int, int) const { return 0; }
    __device__ __forceinline__ float pixel(const Convolution& c, int64_t image, const int (&at)[3],
                                           int channel) const {
        return value_at(c, image, at, channel);
    }
    // Where the filter of a column begins, how far from it the next one, and where the column's
    // weight of a channel at a tap is from there, below 0 where there is none.
    __device__ __forceinline__ const float* filter(const Convolution& c, int64_t number) const {
        return static_cast<const float*>(c.weight) + number * filter_stride(c);
    }
    __device__ __forceinline__ int64_t filter_stride(const Convolution& c) const {
        return c.channels * c.taps();
    }
    __device__ __forceinline__ int64_t place_in_filter(const Convolution& c, int, int, int channel,
                                                       int tap) const {
        return channel * c.taps() + tap;
    }
};

// @sum_windows_in_float32 deps: Corner, Sums, Taps
// A warp's sums of intervals of k in float32, from the operands in memory, one of this lane's two
// rows after the other; `column` is its first one.
template <int kWidth, typename TapsOf, int kTileN, int kPiece>
OPWELD_FN void sum_windows_in_float32(Sums<kTileN, kPiece>& sums, const Convolution& c,
                                      const TapsOf& taps_of, const Taps& first, int batch,
                                      int intervals, const Corner<int> (&corners)[2], int column) {
    const int64_t step = taps_of.filter_stride(c) * (8 / TapsOf::kOfFilter);
    const int64_t number = batch * c.filters + column;
    const int left = int(c.filters) - column;
    const float* const filter[2] = {taps_of.filter(c, number), taps_of.filter(c, number + 1)};
    sums.clear();
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        Taps taps = first;
#pragma unroll 1
        for (int interval = 0; interval < intervals; ++interval) {
            int at[3];
#pragma unroll
            for (int axis = 0; axis < 3; ++axis) {
                at[axis] = corners[row].at[axis] + taps.at[axis] * c.dilation[axis] +
                           taps_of.shift(batch, axis);
            }
            const int begin = taps.interval * kWidth;
            const int end = int(min(c.channels, int64_t(begin + kWidth)));
            float some[kTileN / 4] = {};  // long sums lose less in levels
#pragma unroll 1
            for (int channel = begin; channel < end; ++channel) {
                const float value = taps_of.pixel(c, corners[row].image, at, channel);
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const int64_t place =
                        taps_of.place_in_filter(c, batch, column + j, channel, taps.tap);
                    if (place < 0) continue;  // a zero times Inf is none
                    const float* weight = filter[j] + place;
#pragma unroll
                    for (int i = 0; i < kTileN; i += 8, weight += step) {
                        if (i + j < left) {
                            some[i / 4 + j] = fmaf(value, *weight, some[i / 4 + j]);
                        }
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < kTileN / 4; ++i) {
                sums.value[i * 4 / kPiece][i * 4 % kPiece / 8 * 4 + 2 * row + i % 2] += some[i];
            }
            taps.advance(taps_of.kernel(c, batch));
        }
    }
}

// @WindowLoader deps: AllTaps, PackedOperands, PixelScales, Tiles, TileScales, Ring, cluster, copy_tile, copy_windows, make_tensor_map, make_window_map, sum_windows_in_float32, prefetch_map, tile_at
// Loads tiles of windows and of packed filters, as PackedLoader does those of two matrices, of
// intervals of kWidth channels.
template <int kSpace, typename TapsOf, int kWidth>
struct WindowLoader {
    static constexpr bool kHasFallback = true;
    CUtensorMap a, b;
    Convolution c;
    int of_channels, of_image;  // intervals of channels, of a product and of an image
    int tile_columns;
    TapsOf taps_of;
    Divisor out[3];  // the sizes of c.out

    WindowLoader(const Convolution& c, int of_channels, int of_image, const TapsOf& taps_of)
        : a(),
          b(),
          c(c),
          of_channels(of_channels),
          of_image(of_image),
          tile_columns(0),
          taps_of(taps_of),
          out{c.out[0], c.out[1], c.out[2]} {}

    template <typename T>
    int open(const PackedOperands& from) {
        tile_columns = T::kTileN;
        const int error = make_window_map<kSpace>(&a, from.a, c, T::kTileM, kWidth);
        return error ? error : make_tensor_map(&b, from.b, T::kTileN / T::kBlocks, kWidth);
    }
    __device__ __forceinline__ PixelScales row_scales(const TileGrid&, const TileScales& scales,
                                                      const TileAt& tile, int row,
                                                      int64_t rows) const {
        const int(&kernel)[3] = taps_of.kernel(c, tile.batch);
        const int first = taps_of.first_interval(tile.column * tile_columns, of_channels);
        const auto pixel = [&](int row) {
            if (row >= rows) return PixelScales::Pixel();
            Corner<int> corner(c, out, row);
#pragma unroll
            for (int axis = 0; axis < 3; ++axis) corner.at[axis] += taps_of.shift(tile.batch, axis);
            return PixelScales::Pixel(c, kernel, of_image, first, corner);
        };
        return {c,          kernel,         scales.a, Taps(kernel, of_channels, tile.first),
                pixel(row), pixel(row + 8), 0};
    }
    // A warp's sums in float32, where halves do not do.
    template <int kTileN, int kPiece>
    __device__ __forceinline__ void sum_in_float32(Sums<kTileN, kPiece>& sums, const TileAt& tile,
                                                   int64_t row, int64_t column,
                                                   int64_t rows) const {
        const int lane = own_thread() % 32;
        const auto corner = [&](int64_t row) {  // beyond the last nothing is given
            return Corner<int>(c, out, int(min(row, rows - 1)));
        };
        const Corner<int> corners[2] = {corner(row + lane / 4), corner(row + lane / 4 + 8)};
        const Taps taps(taps_of.kernel(c, tile.batch), of_channels, tile.first);
        const int own = int(column) + lane % 4 * 2, intervals = tile.last - tile.first;
        sum_windows_in_float32<kWidth>(sums, c, taps_of, taps, tile.batch, intervals, corners, own);
    }
    template <typename T>
    __device__ __forceinline__ void fill(typename T::Memory& memory, const TileGrid& grid,
                                         const TileScales&) const {
        constexpr int kChunks = T::Depth::kPerInterval;
        constexpr int kPart = T::kTileN / T::kBlocks;
        const typename T::Blocks blocks;
        prefetch_map(&a);
        prefetch_map(&b);
        Ring<T::kStages> ring;
        ring.parity = 1;  // the ring is empty: the phase before the first counts as ended
        for (int index = cluster_index(); index < grid.count(); index += num_clusters()) {
            const TileAt tile = tile_at(*this, grid, index);
            const int(&kernel)[3] = taps_of.kernel(c, tile.batch);
            const Corner<int> corner(c, out, (tile.row * T::kBlocks + blocks.rank) * T::kTileM);
            const int column = tile.column * T::kTileN + blocks.rank * kPart;
            const int before = taps_of.first_interval(tile.column * T::kTileN, of_channels);
            Taps taps(kernel, of_channels, tile.first);
            const int first = tile.first * kChunks, last = tile.last * kChunks;
#pragma unroll 1  // the loader has few registers
            for (int chunk = first; chunk < last; ++chunk) {
                auto& stage = memory.stage[ring.stage];
                const Barrier& full = memory.full[ring.stage];
                const int offset[3] = {taps.at[0] * c.dilation[0] + taps_of.shift(tile.batch, 0),
                                       taps.at[1] * c.dilation[1] + taps_of.shift(tile.batch, 1),
                                       taps.at[2] * c.dilation[2] + taps_of.shift(tile.batch, 2)};
                const int part = chunk % kChunks;
                memory.empty[ring.stage].wait(ring.parity);
                memory.full[ring.stage].expect(sizeof(stage.a) + sizeof(stage.b));
                copy_windows<kSpace>(stage.a, &a, full,
                                     ((before + taps.interval) * kChunks + part) * kWidth,
                                     corner.at, corner.image, offset);
                copy_tile<(T::kBlocks > 1)>(stage.b + blocks.rank * kPart * T::kChunkBytes, &b,
                                            full, chunk * kWidth, column, tile.batch,
                                            T::Blocks::kAll);
                if (part == kChunks - 1) taps.advance(kernel);
                ring.advance();
            }
        }
    }
};

}  // namespace op
