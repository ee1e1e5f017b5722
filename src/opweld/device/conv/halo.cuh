// Convolutions on Hopper's tensor cores that read their input once for all taps: a block takes
// patches of output pixels, and what their windows show, the halo, comes to shared memory. At each
// tap the tensor cores read other rows of it. Strides are 1.
//
// packed input: [image][pixel][interval of channels][kWidth], all of an image times one power of
// two; filters as those of windows (window_tiles.cuh). Marks tell where halves may not do, by bands
// of pixels; a warp that meets them makes its part of a tile from the operands in memory.

namespace op {

// @HaloShape deps: Convolution
// How the 128 output pixels of a block lie, and the blocks of a patch: a line along the last axis,
// or a column of lines of 8; of two the other behind it or beside it, or the next along the first
// axis.
enum class Blocks { kLine, kColumns, kDeepColumns };

// Patches of output pixels. The pixels of a halo are rows of shared memory, those of each patch
// from a multiple of eight on.
struct HaloShape {
    static constexpr int kTile = 256, kBlock = 128;  // output pixels: of a tile, of one wgmma
    static constexpr int kMostBox = 256;             // rows of a copy along an axis
    int patch[3], box[3];                            // output pixels, and pixels of the halo
    int second[3], group[3];  // from a block of a patch, and from eight pixels, to the next
    int rows, blocks;         // of a patch
    int copies;               // of a patch: of a long line more than one
    int patches[3];           // along each axis of an image

    HaloShape(const Convolution& c, Blocks kind, int blocks)
        : patch{1, 1, kBlock}, second{}, group{}, blocks(blocks) {
        const bool columns = kind != Blocks::kLine;
        if (columns) patch[1] = kBlock / 8, patch[2] = 8;
        group[columns ? 1 : 2] = columns ? 1 : 8;
        const int axis = kind == Blocks::kDeepColumns ? 0 : 2;
        second[axis] = patch[axis];
        patch[axis] *= blocks;
        for (int i = 0; i < 3; ++i) {
            box[i] = patch[i] + (c.kernel[i] - 1) * c.dilation[i];
            patches[i] = (c.out[i] + patch[i] - 1) / patch[i];
        }
        copies = (box[2] + kMostBox - 1) / kMostBox;
        if (copies > 1) box[2] = ((box[2] + copies - 1) / copies + 7) / 8 * 8 * copies;
        rows = (box[0] * box[1] * box[2] + 7) / 8 * 8;
    }
    __host__ __device__ int patches_of_tile() const { return kTile / kBlock / blocks; }
    __host__ __device__ int rows_of_copy() const { return box[0] * box[1] * box[2] / copies; }
    bool can_be_copied() const {
        return box[0] <= kMostBox && box[1] <= kMostBox &&
               (copies == 1 || (box[0] == 1 && box[1] == 1));
    }
    int64_t tiles(const Convolution& c) const {
        const int64_t all = c.batches * patches[0] * patches[1] * patches[2];
        return (all + patches_of_tile() - 1) / patches_of_tile();
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
// Tiles of kColumns filters by two blocks of output pixels, in intervals of kWidth channels.
// Filters are the rows of a wgmma, pixels its columns: so it asks for three quarters of what shared
// memory gives, and a thread has neighbours of a line. A warpgroup multiplies 64 filters; a warp
// loads halos, a thread filters. With 64 filters two thread blocks share a multiprocessor: one ends
// its tile while the other multiplies.
// Where blocks are `paired` their pixels are neighbours, and given together.
template <int kColumns, int kWidthOf, bool kPairedOf>
struct HaloSize {
    static constexpr bool kPaired = kPairedOf;
    using Mode = Tf32;
    static constexpr int kTileM = HaloShape::kTile, kTileN = kColumns, kWidth = kWidthOf;
    static constexpr int kBlocks = 1, kResident = kColumns == 64 ? 2 : 1, kRowBytes = 2 * kWidth;
    static constexpr int kWarpgroups = kColumns / 64, kConsumers = 128 * kWarpgroups;
    static constexpr int kThreads = kConsumers + 128, kReleases = kWarpgroups;
    // All of a block's registers are given out when it starts, as many to each thread.
    static constexpr int kRegisters = 65536 / kResident / kThreads / 8 * 8;
    static constexpr int kSumRegisters = kResident == 2 ? 208 : 232, kLoadRegisters = 40;
    static_assert(kConsumers * kSumRegisters + 128 * kLoadRegisters <= kThreads * kRegisters,
                  "threads would wait for registers that no other has");
    static constexpr int kStages = 4 * (64 / kWidth);
    static constexpr int kMostTaps = 512;
    // What is left of the memory for the halos of a tile, in one interval or, where they fit, in
    // several.
    static constexpr int kMostHalos = 4, kHaloBytes = (kResident == 2 ? 58 : 120) * 1024;
    static constexpr int kMostRows = kHaloBytes / kRowBytes;
    static constexpr int kPitch = 64 + 8;  // neighbouring filters are 8 banks apart
    struct Memory {
        struct Stage {
            alignas(1024) unsigned char b[kTileN * kRowBytes];
        };
        // What is known of the halos of an interval: what sums of a patch and, in a tile's first
        // one, those of a filter are to be multiplied by; marks of both.
        struct alignas(16) Known {
            float of_patch[2], of_filter[kTileN];
            uint32_t marks;
        };
        Stage stage[kStages];
        alignas(1024) unsigned char halo[kHaloBytes];
        // Of a warp's filters, 64 pixels at a time.
        alignas(16) float values[kConsumers / 32][16][kPitch];
        Known known[kMostHalos];
        uint16_t tap_row[kMostTaps];
        Barrier full[kStages], empty[kStages], ready[kMostHalos], taken[kMostHalos];
    };
    static constexpr int kBytes = kTileMemoryBytes<Memory>;
    static_assert(kBytes <= 228 * 1024 / kResident - 1024, "more than blocks can share");
};

// @LiftedPixels deps: PixelsOf, TransposeTile, exponents, fetch_spots, pack_values
// How the input is packed where all of an image is multiplied by one power of two, which a sample
// of it gives: what is 2^9 times as large still fits, and what is less than 2^-18 of it loses
// digits, which marks tell of each block.
template <int kWidth>
struct LiftedPixels : PixelsOf<kWidth> {
    using Of = SpotsOf<kWidth>;
    static constexpr int kSampled = 4, kUp = 5;  // values of a thread; the exponent of the largest
    uint32_t* marks;

    LiftedPixels(const Convolution& c, uint32_t* marks) : PixelsOf<kWidth>(c), marks(marks) {}
    // The largest of this thread's values of the sample, as bits; what is not finite is none.
    __device__ __forceinline__ uint32_t sample(int64_t image) const {
        const Operand& x = this->x;
        const bool across = lies_across(x);
        const int64_t length = across ? this->spots.rows : this->spots.k;
        const uint64_t count = uint64_t(this->spots.rows * this->spots.k);
        const int64_t place = int64_t(threadIdx.x * 2654435761u * count >> 32);  // at random
        const int64_t line = place / length, first = place - line * length;
        const Operand lines = across ? turned(x) : x;
        uint32_t most = 0;
#pragma unroll
        for (int i = 0; i < kSampled; ++i) {
            const int64_t at = min(first + i, length - 1);
            const float value =
                this->source.one(image * lines.batch + line * lines.row + at * lines.inner);
            const uint32_t bits = __float_as_uint(value) & 0x7FFFFFFFu;
            most = max(most, bits < 0x7F800000u ? bits : 0u);
        }
        return most;
    }
    template <int kParts>
    __device__ __forceinline__ void pack(int64_t block, half* packed, float* scales) const {
        __shared__ TransposeTileOf<kWidth> tile;
        __shared__ uint32_t of_warp[8];
        const SpotOf<kWidth> spot(this->spots, this->x, block);
        const bool whole = this->packets && spot.is_whole(this->spots);
        Four v[kOwnRows];
        if (whole) fetch_spots<true>(v, this->source, this->x, spot, this->spots, this->packets);
        else fetch_spots<false>(v, this->source, this->x, spot, this->spots, this->packets);
        const uint32_t sampled = sample(spot.batch);  // under way with them
        const bool across = lies_across(this->x);
        if (across) tile.lay_out(v);
        const uint32_t most = largest_of_block(sampled, of_warp);
        if (across) tile.pick_up(v);
        const float largest = __uint_as_float(most);
        const int up = most == 0 ? kUp : lift(exponent_of(largest)) - (14 - kUp);
        const int known = is_in_range(largest) ? 0 : kDoesNotFit;
        const int of_thread = max(known, put(v, power_of_two(up), spot, packed));
        __syncthreads();  // of_warp has been read
        const uint32_t of_block = largest_of_block(uint32_t(of_thread), of_warp);
        if (threadIdx.x) return;
        marks[place_of(spot.batch, spot.interval, spot.row)] = of_block;
        if (spot.interval == 0 && spot.row == 0) scales[spot.batch] = power_of_two(-up);
    }
    // Packs values times `scale`; gives what is known of them. Lost digits are counted where any
    // value is small enough to have lost some.
    __device__ __forceinline__ int put(Four (&v)[kOwnRows], float scale, const SpotOf<kWidth>& spot,
                                       half* packed) const {
        uint32_t top = 0, bottom = ~0u;  // bits of absolute values, twice, and less 1 but for zeros
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) {
            v[i] = scaled(v[i], scale);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const uint32_t bits = __float_as_uint(v[i].x[j]) << 1;
                top = max(top, bits), bottom = min(bottom, bits - 1);
            }
        }
        const bool fits = top < __float_as_uint(0x1p15f) << 1;
        int known = fits ? 0 : kDoesNotFit;
        const bool asks =
            __any_sync(~0u, bottom < (__float_as_uint(kLeastKept<1>) << 1) - 1 || !fits);
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) {
            const int64_t row = spot.own_row(i), all = spot.batch * this->spots.rows + row;
            half* const to = packed + all * this->spots.intervals * kWidth;
            const bool exists = row < this->spots.rows;
            if (asks) {
                if (loses_digits<1, Of::kThreads>(v[i])) known |= kLosesDigits;
                if (exists) put_parts<1>(to, spot.k, v[i]);
            } else if (exists) {
                alignas(8) const half2 pair[2] = {__floats2half2_rn(v[i].x[0], v[i].x[1]),
                                                  __floats2half2_rn(v[i].x[2], v[i].x[3])};
                *reinterpret_cast<uint2*>(to + spot.k) = *reinterpret_cast<const uint2*>(pair);
            }
        }
        return known;
    }
    // Of what each thread has, through memory for each of eight warps.
    __device__ __forceinline__ static uint32_t largest_of_block(uint32_t own,
                                                                uint32_t (&of_warp)[8]) {
        own = __reduce_max_sync(~0u, own);
        if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
        __syncthreads();
        uint32_t most = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) most = max(most, of_warp[i]);
        return most;
    }
    // Where the marks of a pixel's band are.
    __host__ __device__ int64_t place_of(int64_t image, int64_t interval, int64_t pixel) const {
        const int64_t bands = (this->spots.rows + Of::kBand - 1) / Of::kBand;
        return (image * this->spots.intervals + interval) * bands + pixel / Of::kBand;
    }
};

// @HaloRing deps:
// As Ring, of as many buffers as there is memory for.
struct HaloRing {
    int count, stage = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ explicit HaloRing(int count) : count(count) {}
    __device__ __forceinline__ void advance() {
        if (++stage < count) return;
        stage = 0, parity ^= 1;
    }
};

// @Halos deps: Divisor, HaloRing, HaloShape, LiftedPixels, TileGrid
// A convolution in patches: what its kernel is told. `scales`: of images; `filter_scales`: of
// filters.
template <int kWidth>
struct Halos {
    Convolution c;
    HaloShape shape;
    LiftedPixels<kWidth> pixels;
    const float *scales, *filter_scales;
    Divisor patches[3];
    int buffers, buffer_bytes;  // of halos, in the shared memory of a block

    Halos(const Convolution& c, const HaloShape& shape, const LiftedPixels<kWidth>& pixels,
          const float* scales, const float* filter_scales, int halo_bytes, int most_buffers)
        : c(c),
          shape(shape),
          pixels(pixels),
          scales(scales),
          filter_scales(filter_scales),
          patches{shape.patches[0], shape.patches[1], shape.patches[2]},
          buffer_bytes((shape.rows * shape.patches_of_tile() * 2 * kWidth + 1023) / 1024 * 1024) {
        buffers = std::min(halo_bytes / buffer_bytes, most_buffers);
    }
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
            at[i] += own * shape.second[i] + group * shape.group[i];
            exists = exists && at[i] < c.out[i];
            row = row * c.out[i] + at[i];
        }
        *first = row;
        return exists ? min(c.out[2] - at[2], 8) : 0;
    }
    // What is known of the halo from a pixel on in an interval of channels, by one of 32 lanes.
    __device__ __forceinline__ uint32_t marks_of(int image, const int (&at)[3], int interval,
                                                 int lane) const {
        int first[3], last[3];
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            first[i] = max(at[i], 0), last[i] = min(at[i] + shape.box[i], c.size[i]) - 1;
            if (first[i] > last[i]) return 0;
        }
        uint32_t found = 0;
#pragma unroll 1
        for (int plane = first[0]; plane <= last[0]; ++plane) {
            const int64_t line = int64_t(plane) * c.size[1];
            const auto band_at = [&](const int(&place)[3]) {
                return pixels.place_of(image, interval, (line + place[1]) * c.size[2] + place[2]);
            };
            const int64_t end = band_at(last);
#pragma unroll 1
            for (int64_t band = band_at(first) + lane; band <= end; band += 32)
                found = max(found, __ldg(pixels.marks + band));
        }
        return found;
    }
};

}  // namespace op
