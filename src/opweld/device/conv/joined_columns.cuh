// How the columns of the input of a convolution of few channels are packed, its taps joined, from
// what joined_pixels.cuh has read.

namespace op {

// @pack_columns deps: JoinedBlock, maximum, pack_values
// Lanes that share a column, and how often they take eight neighbours along k each.
template <int kWidth>
constexpr int kColumnLanes = kWidth < 32 ? kWidth / 8 : 4;
template <int kWidth>
constexpr int kOctets = kWidth / 8 / kColumnLanes<kWidth>;

template <int kWidth>
struct Octets {
    float x[kOctets<kWidth>][8];
};

// The largest of a column, and of a lane's values the nearest to zero, which itself is none.
struct Bounds {
    float largest;
    uint32_t nearest;  // bits without the sign, twice and negated; 0 for none

    template <int kWidth>
    __device__ __forceinline__ Bounds(const Octets<kWidth>& v, int octets)
        : largest(0.0f), nearest(0) {
#pragma unroll
        for (int i = 0; i < kOctets<kWidth>; ++i) {
            if (i >= octets) break;
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                largest = maximum(largest, fabsf(v.x[i][j]));
                nearest = max(nearest, __float_as_uint(v.x[i][j]) * 0xFFFFFFFEu);
            }
        }
#pragma unroll
        for (int step = kColumnLanes<kWidth> / 2; step; step /= 2) {
            largest = maximum(largest, __shfl_xor_sync(~0u, largest, step));
        }
    }
    // Whether none of the lane's values loses digits.
    template <int kParts>
    __device__ __forceinline__ bool keeps_digits(float by) const {
        return nearest == 0 || __uint_as_float((0u - nearest) >> 1) * by >= kLeastKept<kParts>;
    }
};

// Eight neighbours along k of which none but zero loses digits.
template <int kParts>
OPWELD_FN void put_octet(const float (&v)[8], float scale, half* to) {
    alignas(16) half2 upper[4];
    [[maybe_unused]] alignas(16) half2 lower[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float a = v[2 * i] * scale, b = v[2 * i + 1] * scale;
        upper[i] = __floats2half2_rn(a, b);
        if constexpr (kParts == 2) {
            const float2 wide = __half22float2(upper[i]);
            lower[i] = __floats2half2_rn(a - wide.x, b - wide.y);
        }
    }
    uint4 word;  // nvcc would take a copy of the array apart
    memcpy(&word, upper, sizeof word);
    *reinterpret_cast<uint4*>(to) = word;
    if constexpr (kParts == 2) {
        memcpy(&word, lower, sizeof word);
        *reinterpret_cast<uint4*>(to + 64 / kParts) = word;
    }
}

// Eight neighbours along k of any values; tells how many lose digits as excess_of does.
template <int kParts>
OPWELD_FN int put_exactly(const float (&v)[8], float scale, half* interval, int k, bool exists) {
    int excess = 0;
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
        const Four lifted = scaled({{v[i], v[i + 1], v[i + 2], v[i + 3]}}, scale);
        excess += excess_of<kParts>(lifted);
        if (exists) put_parts<kParts>(interval, k + i, lifted);
    }
    return excess;
}

// As pack_values: of all lanes of a column, which have values in so many of their octets, and write
// the first one's to `to`.
template <int kParts, int kWidth>
OPWELD_FN void pack_octets(const Octets<kWidth>& v, int octets, bool exists, half* to,
                           float* scale) {
    constexpr int kStep = kColumnLanes<kWidth> * 8;
    static_assert(64 / kParts % kStep == 0, "upper and lower parts of octets are as far apart");
    const Bounds bounds(v, octets);
    const int up = lift(exponent_of(bounds.largest)),
              begin = threadIdx.x % kColumnLanes<kWidth> * 8;
    const float by = power_of_two(up);
    int excess = 0;
    if (__all_sync(~0u, bounds.template keeps_digits<kParts>(by))) {
        if (!exists) return;
#pragma unroll
        for (int i = 0; i < kOctets<kWidth>; ++i)
            put_octet<kParts>(v.x[i], by, to + i * kStep * kParts);
    } else {
#pragma unroll
        for (int i = 0; i < kOctets<kWidth>; ++i) {
            excess += put_exactly<kParts>(v.x[i], by, to - begin, begin + i * kStep, exists);
        }
#pragma unroll
        for (int step = kColumnLanes<kWidth> / 2; step; step /= 2) {
            excess += __shfl_xor_sync(~0u, excess, step);
        }
    }
    if (exists && begin == 0) *scale = packed_scale(bounds.largest, up, excess > 0);
}

// The part of a block that a warp packs: of a row, from `first` on so many columns, and those that
// are `step` apart. `own` is this thread's among them, `pixel` its number among all pixels.
template <int kColumns>
struct ColumnsOfWarp {
    int row, first, step, own;
    int64_t pixel;

    template <int kWidth>
    __device__ __forceinline__ explicit ColumnsOfWarp(const JoinedBlock<kWidth>& block) {
        const int warps = 8 / block.pixels.rows_of_block, warp = threadIdx.x / 32;
        row = warp / warps, step = warps * kColumns;
        first = (warp - row * warps) * kColumns, own = threadIdx.x % 32 / (32 / kColumns);
        pixel = (block.row + row) * block.pixels.by.to.size[2] + block.begin + first + own;
    }
};

// From the tile.
template <int kParts, int kWidth>
OPWELD_FN void pack_columns(const JoinedBlock<kWidth>& block, half* packed, float* scale) {
    constexpr int kStep = kColumnLanes<kWidth> * 8, kDepth = 64 / kParts;
    const ColumnsOfWarp<32 / kColumnLanes<kWidth>> columns(block);
    if (columns.row >= block.rows) return;
    const int octets = (block.values + kStep - 1) / kStep, k = block.interval * kWidth;
    const int begin = threadIdx.x % kColumnLanes<kWidth> * 8, last = block.columns - 1;
    const int pitch = int(block.pixels.intervals.by) * (kParts * kWidth);
    half* to = packed + columns.pixel * pitch + (k / kDepth * 64 + k % kDepth + begin);
    float* scales = scale + (block.space.scale[columns.row] + columns.first + columns.own);
    const int from = columns.row * int(block.pixels.values()) * 4;
    int places[kOctets<kWidth>][8];
    Octets<kWidth> v{};
#pragma unroll
    for (int i = 0; i < kOctets<kWidth>; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            places[i][j] = block.space.place[begin + i * kStep + j] + from;
        }
    }
#pragma unroll 1
    for (int first = columns.first; first <= last; first += columns.step) {
        const int column = first + columns.own, at = min(column, last) * 4;
#pragma unroll
        for (int i = 0; i < kOctets<kWidth>; ++i) {
            if (i >= octets) break;
#pragma unroll
            for (int j = 0; j < 8; ++j) v.x[i][j] = block.at(places[i][j] + at);
        }
        pack_octets<kParts>(v, octets, column <= last, to, scales);
        to += columns.step * pitch, scales += columns.step;
    }
}

// From memory: as many threads for a column as a spot has.
template <int kParts, int kWidth>
OPWELD_FN void pack_from_memory(const JoinedBlock<kWidth>& block, half* packed, float* scale) {
    constexpr int kThreads = kWidth / 4;
    const ColumnsOfWarp<32 / kThreads> columns(block);
    if (columns.row >= block.rows) return;
    const Convolution& c = block.pixels.by.from;
    const int begin = threadIdx.x % kThreads * 4, k = block.interval * kWidth + begin;
    const int64_t pitch = block.pixels.intervals.by * (kParts * kWidth);
    int lines[4], across[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int line = int(block.pixels.across.quotient(unsigned(k + i)));
        across[i] = block.left() + (k + i - line * c.kernel[2]) * c.dilation[2];
        const int own = line - block.line + columns.row * block.lines;
        lines[i] = begin + i < block.values ? own : -1;
    }
    half* to = packed + columns.pixel * pitch;
    float* scales = scale + block.space.scale[columns.row] + columns.first + columns.own;
#pragma unroll 1
    for (int first = columns.first; first < block.columns; first += columns.step) {
        const int column = first + columns.own;
        Four v{};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (column >= block.columns || lines[i] < 0) continue;
            const int at = column * c.stride[2] + across[i];
            const auto line = block.space.line[lines[i]];
            if (unsigned(at) < unsigned(line.width)) v.x[i] = __ldg(line.from + at * c.pixel);
        }
        pack_values<kParts, true, kThreads>(v, column < block.columns, to, k, scales);
        to += columns.step * pitch, scales += columns.step;
    }
}

// @pack_joined deps: load_joined, pack_columns
template <int kWidth>
template <int kParts>
__device__ __forceinline__ void JoinedPixels<kWidth>::pack(int64_t number, half* packed,
                                                           float* scale) const {
    __shared__ JoinedSpace<kWidth> space;
    const JoinedBlock<kWidth> block(*this, space, int(number));
    block.find_places();
    __syncthreads();
    if (in_tiles) {
        load_joined(block);
        __syncthreads();
        pack_columns<kParts>(block, packed, scale);
    } else {
        pack_from_memory<kParts>(block, packed, scale);
    }
}

}  // namespace op
