// Convolutions on Hopper's tensor cores whose input is packed in shared memory: a block takes
// patches of output pixels, and packs what their windows show, the halo, once for all taps. At each
// tap the tensor cores read other rows of it. Strides are 1.

namespace op {

// @HaloShape deps: Convolution
// How the 64 output pixels of a block lie, and the blocks of a patch: lines along the last axis,
// one behind or one below the other, or squares of 8 by 8, one below the other or one behind the
// other along the first axis.
enum class Blocks { kLine, kLines, kSquares, kDeepSquares };

// Patches of output pixels; the pixels of their halos, one patch after the other, are rows of
// shared memory.
struct HaloShape {
    static constexpr int kTile = 256, kBlock = 64;  // output pixels: of a tile, of one wgmma
    int patch[3], box[3];                           // output pixels, and pixels of the halo
    int block[3], group[3];  // from a block of a patch, and from eight pixels, to the next
    int rows, blocks;        // of a patch
    int patches[3];          // along each axis of an image

    HaloShape(const Convolution& c, Blocks kind, int blocks)
        : patch{1, 1, kBlock}, block{}, group{}, rows(1), blocks(blocks) {
        const bool squares = kind == Blocks::kSquares || kind == Blocks::kDeepSquares;
        if (squares) patch[1] = patch[2] = 8;
        group[squares ? 1 : 2] = squares ? 1 : 8;
        const int axis = kind == Blocks::kLine ? 2 : kind == Blocks::kDeepSquares ? 0 : 1;
        block[axis] = patch[axis];
        patch[axis] *= blocks;
        for (int i = 0; i < 3; ++i) {
            box[i] = patch[i] + (c.kernel[i] - 1) * c.dilation[i];
            rows *= box[i];
            patches[i] = (c.out[i] + patch[i] - 1) / patch[i];
        }
    }
    __host__ __device__ int patches_of_tile() const { return kTile / kBlock / blocks; }
    int64_t tiles(const Convolution& c) const {
        const int64_t all = c.batches * patches[0] * patches[1] * patches[2];
        return (all + patches_of_tile() - 1) / patches_of_tile();
    }
    // How far the pixel of a row is from the first one, 10 bits for each axis.
    __device__ __forceinline__ int pixel_of(int row) const {
        const int line = row / box[2], plane = line / box[1];
        return plane << 20 | (line - plane * box[1]) << 10 | (row - line * box[2]);
    }
    // The row that a block's first output pixel sees at a tap, from that which it sees at the
    // first.
    __device__ __forceinline__ int row_of(const Convolution& c, int tap) const {
        const int line = tap / c.kernel[2], plane = line / c.kernel[1];
        return (plane * c.dilation[0] * box[1] + (line - plane * c.kernel[1]) * c.dilation[1]) *
                   box[2] +
               (tap - line * c.kernel[2]) * c.dilation[2];
    }
};

// @HaloSize deps: Barrier, HaloShape, Tf32, tile_memory
// Tiles of 256 output pixels by kColumns filters, in intervals of kWidth channels. Two warpgroups
// multiply, 128 pixels each, one or two pack the halos of the next interval, a thread loads
// filters.
template <int kColumns, int kWidthOf>
struct HaloSize {
    using Mode = Tf32;
    static constexpr int kTileM = HaloShape::kTile, kTileN = kColumns, kWidth = kWidthOf;
    static constexpr int kBlocks = 1, kResident = 1, kRowBytes = 2 * kWidth;
    // Sums of 128 filters leave registers for half as many threads that pack; there is also less to
    // pack for as much that is multiplied.
    static constexpr bool kNarrow = kColumns == 64;
    static constexpr int kSummers = 256, kPackers = kNarrow ? 256 : 128;
    static constexpr int kThreads = kSummers + kPackers + 128, kLoadRegisters = 32;
    // All of a block's registers are given out when it starts, as many to each thread.
    static constexpr int kRegisters = 65536 / kThreads / 8 * 8;
    static constexpr int kSumRegisters = kNarrow ? 144 : 200;
    static constexpr int kPackRegisters = 80;
    static_assert(kSummers * kSumRegisters + kPackers * kPackRegisters + 128 * kLoadRegisters <=
                      kThreads * kRegisters,
                  "threads would wait for registers that no other has");
    static constexpr int kStages = (kNarrow ? 4 : 3) * (64 / kWidth), kReleases = 2;
    // Channels that a thread packs at once, and how many times as many are on their way.
    static constexpr int kEach = 16, kAhead = kNarrow ? 3 : 4;
    static constexpr int kMostTaps = 512;
    // What is left of the memory for the halos of two intervals, and their rows.
    static constexpr int kHaloBytes = 50 * 1024;
    static constexpr int kMostRows = kHaloBytes / kRowBytes;
    static constexpr int kPitch = 64 + 4;  // neighbouring rows are 4 banks apart
    struct Memory {
        struct Stage {
            alignas(1024) unsigned char b[kTileN * kRowBytes];
        };
        struct Found {
            uint32_t most, least;
        };
        struct Packed {
            int up, marks;  // values have been multiplied by 2^up
        };
        struct alignas(16) Corner {
            int at[3], image;
        };
        Stage stage[kStages];
        alignas(1024) unsigned char halo[2][kHaloBytes];
        union alignas(16) Space {  // of a warpgroup, for its results
            float rows[4][16][kPitch];
            float columns[64][kPitch];
        };
        Space space[2];
        union alignas(16) Values {  // of a turn, with channels first or last
            float ones[kEach][kPackers];
            float4 fours[kEach / 4][kPackers];
        };
        Values values[kAhead];
        Corner corner[2][4];  // of this tile and the next
        Found found[2][kPackers / 32];
        Packed packed[2];
        int tap_row[kMostTaps];
        int pixel[kMostRows];
        Barrier full[kStages], empty[kStages], ready[2], taken[2];
    };
    static constexpr int kBytes = kTileMemoryBytes<Memory>;
};

// @Halos deps: Divisor, HaloShape, TileGrid
// A convolution in patches: what its kernel is told. `in_runs`: the epilogue takes runs of rows.
struct Halos {
    Convolution c;
    HaloShape shape;
    Divisor rows, patches[3];
    bool channels_last, in_runs;

    Halos(const Convolution& c, const HaloShape& shape, bool in_runs)
        : c(c),
          shape(shape),
          rows(shape.rows),
          patches{shape.patches[0], shape.patches[1], shape.patches[2]},
          channels_last(c.channel == 1 && c.pixel % 4 == 0 && c.batch % 4 == 0 &&
                        reinterpret_cast<uintptr_t>(c.x) % 16 == 0),
          in_runs(in_runs) {}
    // The first output pixel of a patch; its image, or -1 where there is none.
    __device__ __forceinline__ int first_of(int patch, int (&at)[3]) const {
#pragma unroll
        for (int i = 2; i >= 0; --i) {
            const int outer = int(patches[i].quotient(unsigned(patch)));
            at[i] = (patch - outer * int(patches[i].by)) * shape.patch[i];
            patch = outer;
        }
        return patch < c.batches ? patch : -1;
    }
    // How many of eight neighbouring output pixels there are, those of group `group` of this block
    // of a tile, and the first of them among all.
    __device__ __forceinline__ int run_of(const TileAt& tile, int block, int group,
                                          int64_t* first) const {
        const int of_tile = block / shape.blocks, own = block - of_tile * shape.blocks;
        int at[3];
        const int image = first_of(tile.row * shape.patches_of_tile() + of_tile, at);
        bool exists = image >= 0;
        int64_t row = image;
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            at[i] += own * shape.block[i] + group * shape.group[i];
            exists = exists && at[i] < c.out[i];
            row = row * c.out[i] + at[i];
        }
        *first = row;
        return exists ? min(c.out[2] - at[2], 8) : 0;
    }
};

// @HaloPacker deps: HaloSize, Halos, copy_async, copy_async_word, exponents, fence_proxy, half, half_header, load_vector, shared_address
// What a packing thread does: it takes 16 channels of a pixel at once, a turn, and packs them while
// those of the next turns come to shared memory, where no other thread reads them. Neighbours in a
// warp take neighbouring pixels or, where channels are last in memory, channels.
template <typename T>
struct HaloPacker {
    static constexpr int kEach = T::kEach, kShares = T::kWidth / kEach, kAhead = T::kAhead;
    static constexpr int kWarps = T::kPackers / 32;
    static constexpr int kPixels = 32 / kShares;  // of a warp, with channels last
    using Corner = typename T::Memory::Corner;
    // What is to be packed: an interval of the halos with these corners.
    struct Interval {
        const Corner* corners;
        int channel;  // the first
    };
    const Halos& halos;
    typename T::Memory& memory;
    int count, turns, thread, slot;  // rows of all halos, and turns of a thread over them

    __device__ __forceinline__ HaloPacker(const Halos& halos, typename T::Memory& memory)
        : halos(halos),
          memory(memory),
          count(halos.shape.rows * halos.shape.patches_of_tile()),
          thread(int(threadIdx.x) - T::kSummers),
          slot(0) {
        const int shares = (count + 31) / 32 * kShares;
        turns = max((shares + kWarps - 1) / kWarps, kAhead);
    }
    // The row of a turn, and which of its channels.
    __device__ __forceinline__ int row_of(int turn) const {
        const int share = turn * kWarps + thread / 32, lane = thread % 32;
        return halos.channels_last ? share * kPixels + lane / kShares : share / kShares * 32 + lane;
    }
    __device__ __forceinline__ int share_of(int turn) const {
        const int lane = thread % 32;
        return halos.channels_last ? lane % kShares : (turn * kWarps + thread / 32) % kShares;
    }
    // Has the values of a turn brought to a slot.
    __device__ __forceinline__ void load(int slot, const Interval& interval, int turn) const {
        const Convolution& c = halos.c;
        const int row = row_of(turn), channel = interval.channel + share_of(turn) * kEach;
        const int channels = int(c.channels) - channel;  // a multiple of eight
        const float* from = static_cast<const float*>(c.x);
        bool exists = false;
        if (row < count) {
            const int patch = int(halos.rows.quotient(unsigned(row)));
            const int far = memory.pixel[row - patch * halos.shape.rows];
            const Corner corner = interval.corners[patch];
            const int at[3] = {corner.at[0] + (far >> 20), corner.at[1] + (far >> 10 & 1023),
                               corner.at[2] + (far & 1023)};
            exists = corner.image >= 0 && unsigned(at[0]) < unsigned(c.size[0]) &&
                     unsigned(at[1]) < unsigned(c.size[1]) && unsigned(at[2]) < unsigned(c.size[2]);
            const int pixel = (at[0] * c.size[1] + at[1]) * c.size[2] + at[2];
            from += corner.image * c.batch + pixel * int(c.pixel) + channel * c.channel;
        }
        auto& values = memory.values[slot];
        if (halos.channels_last) {
#pragma unroll
            for (int j = 0; j < kEach; j += 4)
                copy_async(shared_address(&values.fours[j / 4][thread]), from + j,
                           exists && j / 8 * 8 < channels ? 16 : 0);
        } else {
            const auto to = shared_address(&values.ones[0][thread]);
#pragma unroll
            for (int j = 0; j < kEach; ++j) {
                copy_async_word(to + j * T::kPackers * 4, from,
                                exists && j / 8 * 8 < channels ? 4 : 0);
                from += c.channel;
            }
        }
        commit_copies();
    }
    // Takes the values of the next turn from its slot.
    __device__ __forceinline__ void take(float (&value)[kEach]) const {
        const auto& values = memory.values[slot];
        await_copies<kAhead - 1>();
        if (halos.channels_last) {
#pragma unroll
            for (int j = 0; j < kEach; j += 4) {
                const auto four = load_vector<4>(&values.fours[j / 4][thread].x);
#pragma unroll
                for (int i = 0; i < 4; ++i) value[j + i] = four.lane[i];
            }
        } else {
#pragma unroll
            for (int j = 0; j < kEach; ++j) value[j] = values.ones[j][thread];
        }
    }
    // Bits of the largest value, twice, and of the least that is not zero, twice and less 1.
    struct Found {
        uint32_t most = 0, least = ~0u;
    };
    // Packs those of a turn, times `scale`; with `keeps` none but zero becomes zero, which a sum of
    // zeros would not tell.
    __device__ __forceinline__ void pack(unsigned char* halo, int turn, float scale, bool keeps,
                                         float (&value)[kEach], Found& found) const {
        constexpr float kLeast = 0x1p-24f;  // of half
        const int row = row_of(turn);
        alignas(16) half2 packed[kEach / 2];
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
            const uint32_t bits = __float_as_uint(value[j]) << 1;
            found.most = max(found.most, bits);
            found.least = min(found.least, bits - 1);
        }
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
            const bool vanishes = keeps && value[j] != 0.0f && fabsf(value[j] * scale) < kLeast;
            value[j] = vanishes ? copysignf(kLeast, value[j]) : value[j] * scale;
        }
#pragma unroll
        for (int j = 0; j < kEach / 2; ++j)
            packed[j] = __floats2half2_rn(value[2 * j], value[2 * j + 1]);
        if (row >= count) return;
        const int begin = row * T::kRowBytes, swizzle = begin >> 7 & (T::kRowBytes / 16 - 1);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int unit = (share_of(turn) * 2 + i) ^ swizzle;
            *reinterpret_cast<uint4*>(halo + begin + unit * 16) =
                reinterpret_cast<const uint4*>(packed)[i];
        }
    }
    // Packs an interval, whose first values are under way or are brought first, and has those of
    // the `next` one brought.
    __device__ __forceinline__ Found pack_interval(unsigned char* halo, const Interval& own,
                                                   const Interval& next, bool under_way, int up,
                                                   bool keeps) {
        Found found;
        const float scale = power_of_two(up);
        if (!under_way) {
            await_copies<0>();
            slot = 0;
            for (int i = 0; i < kAhead; ++i) load(i, own, i);
        }
#pragma unroll 1
        for (int turn = 0; turn < turns; ++turn) {
            float value[kEach];
            take(value);
            const int later = turn + kAhead;
            load(slot, later < turns ? own : next, later < turns ? later : later - turns);
            slot = slot + 1 == kAhead ? 0 : slot + 1;
            pack(halo, turn, scale, keeps, value, found);
        }
        return found;
    }
};

// @pack_halos deps: HaloPacker, Ring, TileGrid, fence_proxy, pack_values, sync_threads
// What the packing threads do. An interval is packed under the scale of the one before; where its
// largest value leaves the range that halves are exact in, again, under one of its own.
template <typename T>
OPWELD_FN void pack_halos(typename T::Memory& memory, const Halos& halos, const TileGrid& grid) {
    constexpr int kLow = 10, kHigh = 14, kMiddle = 13, kFar = 40, kBarrier = 1;
    const Convolution& c = halos.c;
    const int thread = int(threadIdx.x) - T::kSummers;
    const int patches = halos.shape.patches_of_tile(), step = int(gridDim.x);
    const auto find_corners = [&](int index, typename T::Memory::Corner* corners) {
        if (thread >= patches) return;
        int at[3];
        corners[thread].image = halos.first_of(TileAt(grid, index).row * patches + thread, at);
        if (index >= grid.count()) corners[thread].image = -1;
        for (int i = 0; i < 3; ++i) corners[thread].at[i] = at[i] - c.padding[i];
    };
    HaloPacker<T> packer(halos, memory);
    int up = kMiddle - 1, round = 0;
    Ring<2> buffer;
    buffer.parity = 1;  // the buffers are empty: the phase before the first counts as ended
    find_corners(int(blockIdx.x), memory.corner[0]);
    sync_threads<T::kPackers>(kBarrier);
    bool under_way = false;
    for (int index = int(blockIdx.x), odd = 0; index < grid.count(); index += step, odd ^= 1) {
        const auto* corners = memory.corner[odd];
        find_corners(index + step, memory.corner[odd ^ 1]);
        sync_threads<T::kPackers>(kBarrier);
        int of_tile = 0;
        for (int interval = 0; interval < grid.intervals; ++interval) {
            const bool is_last = interval + 1 == grid.intervals;
            // behind the last one of a tile the first of the next
            const typename HaloPacker<T>::Interval own{corners, interval * T::kWidth},
                next{memory.corner[odd ^ is_last], is_last ? 0 : own.channel + T::kWidth};
            memory.taken[buffer.stage].wait(buffer.parity);
            typename T::Memory::Packed packed{up, 0};
            for (bool again = false, keeps = false;;) {
                const auto found = packer.pack_interval(memory.halo[buffer.stage], own, next,
                                                        under_way, packed.up, keeps);
                under_way = true;
                const uint32_t most_of_warp = __reduce_max_sync(~0u, found.most);
                const uint32_t least_of_warp = ~__reduce_max_sync(~0u, ~found.least);
                if (thread % 32 == 0)
                    memory.found[round % 2][thread / 32] = {most_of_warp, least_of_warp};
                fence_proxy();
                sync_threads<T::kPackers>(kBarrier);
                uint32_t most = 0, least = ~0u;
#pragma unroll
                for (int i = 0; i < T::kPackers / 32; ++i) {
                    most = max(most, memory.found[round % 2][i].most);
                    least = min(least, memory.found[round % 2][i].least);
                }
                ++round;
                const float largest = __uint_as_float(most >> 1);
                const int exponent = exponent_of(largest), lifted = exponent + packed.up;
                const bool fits = most == 0 || (lifted >= kLow && lifted <= kHigh);
                if (!fits && !again && is_in_range(largest)) {
                    packed.up = kMiddle - exponent, again = true, under_way = false;
                    continue;
                }
                const float smallest = __uint_as_float((least + 1) >> 1) * power_of_two(packed.up);
                if (fits && !keeps && most != 0 && smallest < 0x1p-24f) {
                    keeps = true, under_way = false;
                    continue;
                }
                if (most != 0 && smallest < 0x1p-14f) packed.marks = kLosesDigits;
                if (!fits) packed.marks = kDoesNotFit;
                break;
            }
            if (interval == 0) of_tile = packed.up;
            if (abs(packed.up - of_tile) > kFar) packed.marks = kDoesNotFit, packed.up = of_tile;
            up = packed.up;
            if (thread == 0) {
                memory.packed[buffer.stage] = packed;
                memory.ready[buffer.stage].arrive();
            }
            buffer.advance();
        }
    }
    await_copies<0>();
}

}  // namespace op
