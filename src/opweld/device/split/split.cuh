// Operands of tensor-core products in packed form: float32 values as one or two half-precision
// parts, scaled by powers of two so that nothing is lost that a product of their precision would
// have kept.
//
// a packed operand: [batch][row][chunk][64]; what a chunk holds stands at Chunks. Convolutions of
// few channels have intervals, and chunks, of 32 or 16 values. a = parts *
// a_scale[batch][interval][row] / 2^c[k], b = parts * b_scale[row] * 2^c[k], `parts` the sum of the
// upper and the lower part, or the upper part alone, which is the value in 11 bits; c[k] is the
// exponent of the largest |b[., k]|: with it no column of b is small beside the others.

namespace op {

// @kInterval deps:
constexpr int kInterval = 64;  // values of k of a row of a under one scale

static __host__ __device__ __forceinline__ int64_t interval_count(int64_t k,
                                                                  int width = kInterval) {
    return (k + width - 1) / width;
}

// @exponents deps:
// floor(log2 |x|) of a normal number; -127 of zero and subnormal numbers, 128 of Inf and NaN
[[maybe_unused]] OPWELD_FN int exponent_of(float x) {
    return int(__float_as_uint(x) >> 23 & 255) - 127;
}

// 2^e for -126 <= e <= 127
[[maybe_unused]] OPWELD_FN float power_of_two(int e) {
    return __uint_as_float(uint32_t(127 + e) << 23);
}

// What a largest value of this exponent is multiplied by to reach 2^14 <= |x| < 2^15.
[[maybe_unused]] OPWELD_FN int lift(int exponent) {
    return exponent == -127 ? 0 : min(max(14 - exponent, -66), 126);
}

// Whether such a scale keeps what float32 would keep: sums can neither overflow before they are
// scaled back nor fall among the subnormal numbers.
[[maybe_unused]] OPWELD_FN bool is_in_range(float largest) {
    const int e = exponent_of(largest);
    return largest == 0.0f || (e >= -110 && e <= 80);
}

// The exponent that column k of b is divided by and column k of a multiplied by.
[[maybe_unused]] OPWELD_FN int column_exponent(uint32_t largest_bits) {
    const int e = exponent_of(__uint_as_float(largest_bits));
    return e == -127 ? 0 : min(max(e, -60), 60);
}

// @ReadFour deps: Operand, load_vector, to_compute
// Four neighbouring values along k of one row, as float32; zero outside the operand.
struct Four {
    float x[4];
};

[[maybe_unused]] OPWELD_FN float largest_of(const Four& v) {
    // not fmaxf, which passes over NaN: bit patterns of |x| are ordered, NaN above all
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) most = max(most, __float_as_uint(v.x[i]) & 0x7FFFFFFFu);
    return __uint_as_float(most);
}

// The four values from p on, of which `count` exist; the others are zero. kWhole: all of them,
// which may be read at once, as they may with `packets`.
template <typename T, bool kWhole = false>
OPWELD_FN Four read_values(const T* p, int64_t inner, int64_t count, bool packets) {
    Four four{};
    if constexpr (!kWhole) {
        if (!packets || count < 4) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (i < count) four.x[i] = to_compute(p[i * inner]);
            }
            return four;
        }
    }
    const auto values = load_vector<4>(p);
#pragma unroll
    for (int i = 0; i < 4; ++i) four.x[i] = to_compute(values.lane[i]);
    return four;
}

// @InMemory deps: ReadFour
// Where an operand's values come from, by their places in it: here they are stored there. What
// computes them instead (contract_prologue.cuh) has the same functions.
template <typename Value>
struct InMemory {
    using T = Value;
    static constexpr bool packed = true;  // neighbours may be asked for at once, if aligned
    const T* data;

    // four neighbours `inner` apart from `at` on, as read_values gives them
    template <bool kWhole>
    __device__ __forceinline__ Four four(int64_t at, int64_t inner, int64_t count,
                                         bool packets) const {
        return read_values<T, kWhole>(data + at, inner, count, packets);
    }
    __device__ __forceinline__ float one(int64_t at) const { return to_compute(data[at]); }
};

// @put_parts deps: ReadFour, half, half_header
// Four scaled values as upper and lower parts, at their place among a row's chunks of 32; or as
// upper parts, among chunks of 64. None but zero becomes zero: a sum of zeros had nothing to lose.
template <int kParts>
OPWELD_FN void put_parts(half* row, int64_t place, const Four& v) {
    constexpr int kDepth = 64 / kParts;
    constexpr float kLeast = 0x1p-24f;  // of half
    alignas(8) half upper[4];
    [[maybe_unused]] alignas(8) half lower[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const bool vanishes = v.x[i] != 0.0f && fabsf(v.x[i]) < kLeast;
        const float x = vanishes ? copysignf(kLeast, v.x[i]) : v.x[i];
        upper[i] = __float2half_rn(x);
        lower[i] = __float2half_rn(x - __half2float(upper[i]));
    }
    half* chunk = row + place / kDepth * 64 + place % kDepth;
    *reinterpret_cast<uint2*>(chunk) = *reinterpret_cast<const uint2*>(upper);
    if constexpr (kParts == 2) {
        *reinterpret_cast<uint2*>(chunk + kDepth) = *reinterpret_cast<const uint2*>(lower);
    }
}

// @lies_across deps: Operand
// Whether rows of an operand lie nearer in memory than neighbours along k, and the operand with one
// in place of the other.
[[maybe_unused]] static __host__ __device__ __forceinline__ bool lies_across(const Operand& from) {
    return from.row < from.inner;
}
[[maybe_unused]] static __host__ __device__ __forceinline__ Operand turned(const Operand& from) {
    return {from.data, from.batch, from.inner, from.row};
}

// @Spots deps: kInterval, lies_across
// How threads divide an operand for splitting: 16 neighbours take one interval of a row, four
// values each, a block of 256 the same interval of a band of rows, four rows a thread. Of intervals
// of kWidth values there are fewer neighbours, and longer bands.
[[maybe_unused]] constexpr int kSpotThreads = kInterval / 4, kOwnRows = 4,
                               kBand = kOwnRows * 256 / kSpotThreads;

template <int kWidth>
struct SpotsOf {
    static constexpr int kThreads = kWidth / 4, kRows = 256 / kThreads, kBand = kOwnRows * kRows;
    // Where an operand lies across: threads along its rows, and lines below each other.
    static constexpr int kAcross = kBand / 4, kLines = 256 / kAcross;
    int64_t batches, rows, k, intervals;

    __host__ __device__ int64_t bands() const { return batches * ((rows + kBand - 1) / kBand); }
    __host__ __device__ int64_t count() const { return bands() * intervals; }
};
using Spots = SpotsOf<kInterval>;

// One interval of one band, and this thread's place in it. Spots that follow each other lie side by
// side in memory: along k, or where the operand lies across along its rows.
template <int kWidth>
struct SpotOf {
    using Of = SpotsOf<kWidth>;
    int64_t batch, row, interval, k;  // the first row of the band; this thread's first k

    __device__ __forceinline__ SpotOf(const Of& spots, const Operand& from, int64_t index) {
        const bool across = lies_across(from);
        const int64_t all = spots.bands(), bands = (spots.rows + Of::kBand - 1) / Of::kBand;
        const int64_t band = across ? index % all : index / spots.intervals;
        interval = across ? index / all : index % spots.intervals;
        batch = band / bands;
        row = band % bands * Of::kBand;
        k = interval * kWidth + threadIdx.x % Of::kThreads * 4;
    }
    // the row of four values of this thread
    __device__ __forceinline__ int64_t own_row(int i) const {
        return row + threadIdx.x / Of::kThreads + i * Of::kRows;
    }
    // all of it is inside the operand
    __device__ __forceinline__ bool is_whole(const Of& spots) const {
        return row + Of::kBand <= spots.rows && (interval + 1) * kWidth <= spots.k;
    }
};
using SpotAt = SpotOf<kInterval>;

// @spot_facts deps: Spots, ReadFour
// The largest absolute value among the kThreads of a spot.
template <int kThreads = kSpotThreads>
OPWELD_FN uint32_t largest_of_spot(uint32_t bits) {
#pragma unroll
    for (int step = kThreads / 2; step; step /= 2) {
        bits = max(bits, __shfl_xor_sync(~0u, bits, step));
    }
    return bits;
}

// Whether more than one in 16 of a spot's values, zeros apart, have digits below those that the
// last part keeps, which rounds at 2^-25: of values below 1 not all 24 bits are there, of values
// below 2^-13 not all 11. Whether the lost ones count is asked of the sums (cancellation.cuh).
template <int kParts>
constexpr float kLeastKept = kParts == 2 ? 1.0f : 0x1p-13f;

template <int kParts>
OPWELD_FN int excess_of(const Four& scaled) {
    int excess = 0;  // of 16 times those that lose over all
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (scaled.x[i] != 0.0f) excess += fabsf(scaled.x[i]) < kLeastKept<kParts> ? 15 : -1;
    }
    return excess;
}

template <int kParts, int kThreads = kSpotThreads>
OPWELD_FN bool loses_digits(const Four& scaled) {
    int excess = excess_of<kParts>(scaled);
#pragma unroll
    for (int step = kThreads / 2; step; step /= 2) excess += __shfl_xor_sync(~0u, excess, step);
    return excess > 0;
}

// @scaled deps: ReadFour
[[maybe_unused]] OPWELD_FN Four equilibrated(const Four& v, const Four& factors) {
    Four own;
#pragma unroll
    for (int i = 0; i < 4; ++i) own.x[i] = v.x[i] * factors.x[i];
    return own;
}

[[maybe_unused]] OPWELD_FN Four scaled(const Four& v, float scale) {
    return equilibrated(v, {{scale, scale, scale, scale}});
}

// @equilibrated deps: exponents, scaled
// Columns k and on divided by 2^c, or multiplied (`sign` 1). Where a column of b is zero so are all
// its products: what stands in a does not count, unless it is no number.
[[maybe_unused]] OPWELD_FN float column_factor(uint32_t largest_bits, int sign) {
    return largest_bits == 0 ? 0.0f : power_of_two(sign * column_exponent(largest_bits));
}

// The factors of columns k to k + 3; zero beyond the last. kWhole: all of them are there.
template <bool kWhole>
OPWELD_FN Four column_factors(const uint32_t* column_max, int64_t k, int64_t depth, int sign) {
    Four factors{};
    if constexpr (!kWhole) {
        if (k + 4 > depth) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (k + i < depth) factors.x[i] = column_factor(column_max[k + i], sign);
            }
            return factors;
        }
    }
    const uint4 most = *reinterpret_cast<const uint4*>(column_max + k);
    const uint32_t bits[4] = {most.x, most.y, most.z, most.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) factors.x[i] = column_factor(bits[i], sign);
    return factors;
}

// @fetch_spots deps: InMemory, Spots, lies_across
// What this thread reads of a spot, straight along memory: four values along k of each of its rows
// or, where the operand lies across, four rows of each of as many k.
template <bool kWhole, int kWidth, typename Source>
OPWELD_FN void fetch_spots(Four (&v)[kOwnRows], const Source& source, const Operand& from,
                           const SpotOf<kWidth>& spot, const SpotsOf<kWidth>& spots, bool packets) {
    using Of = SpotsOf<kWidth>;
    const bool across = lies_across(from);
    const Operand lines = across ? turned(from) : from;
    const int down = across ? threadIdx.x / Of::kAcross : threadIdx.x / Of::kThreads;
    const int along = across ? threadIdx.x % Of::kAcross : threadIdx.x % Of::kThreads;
    const int step = across ? Of::kLines : Of::kRows;
    const int64_t begin = spot.interval * kWidth;
    const int64_t count = across ? spots.k : spots.rows, length = across ? spots.rows : spots.k;
    const int64_t line = (across ? begin : spot.row) + down;
    const int64_t at = (across ? spot.row : begin) + along * 4;
    const int64_t first = spot.batch * lines.batch + line * lines.row + at * lines.inner;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
        const int64_t left = line + i * step < count ? length - at : 0;
        v[i] =
            source.template four<kWhole>(first + i * step * lines.row, lines.inner, left, packets);
    }
}

// @TransposeTile deps: Spots, ReadFour
// Where the values of a spot that lies across change places: laid out four rows of one k at a time,
// picked up four k of one row. What lies where is permuted so that banks of memory do not collide.
template <int kWidth>
struct alignas(16) TransposeTileOf {
    using Of = SpotsOf<kWidth>;
    static constexpr int kSpread = kWidth < 32 ? 2 : 1;  // a warp has rows of two groups of four
    float value[kWidth][Of::kBand];

    __device__ __forceinline__ void lay_out(const Four (&v)[kOwnRows]) {
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) {
            const int k = threadIdx.x / Of::kAcross + i * Of::kLines;
            const int swap = i * Of::kLines / 32 * 2;
            const int group = threadIdx.x % Of::kAcross ^ k / 4 * kSpread % 8;
            *reinterpret_cast<float4*>(&value[k][group * 4]) =
                make_float4(v[i].x[swap], v[i].x[1 ^ swap], v[i].x[2 ^ swap], v[i].x[3 ^ swap]);
        }
    }
    __device__ __forceinline__ void pick_up(Four (&v)[kOwnRows]) const {
        const int k = threadIdx.x % Of::kThreads * 4;
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) {
            const int row = threadIdx.x / Of::kThreads + i * Of::kRows;
            const int place = (row / 4 ^ k / 4 * kSpread % 8) * 4 + (row % 4 ^ k / 32 * 2);
#pragma unroll
            for (int j = 0; j < 4; ++j) v[i].x[j] = value[k + j][place];
        }
    }
};
using TransposeTile = TransposeTileOf<kInterval>;

// @take_spots deps: fetch_spots, TransposeTile
// Four values along k of each of this thread's rows of a spot.
template <bool kWhole, int kWidth, typename Source>
OPWELD_FN void take_spots(Four (&v)[kOwnRows], const Source& source, const Operand& from,
                          const SpotOf<kWidth>& spot, const SpotsOf<kWidth>& spots, bool packets,
                          TransposeTileOf<kWidth>& tile) {
    fetch_spots<kWhole>(v, source, from, spot, spots, packets);
    if (!lies_across(from)) return;
    __syncthreads();  // what stands in shared memory has been read
    tile.lay_out(v);
    __syncthreads();
    tile.pick_up(v);
}

// @PlainColumns deps: ReadFour
// Columns as they are. Scales carry marks of what is known of their values.
struct PlainColumns {
    static constexpr bool kMarksScales = true;

    template <bool kWhole>
    __device__ __forceinline__ PlainColumns factors(int64_t, int64_t) const {
        return {};
    }
    __device__ __forceinline__ Four times(const Four& v) const { return v; }
};

// @EquilibratedColumns deps: equilibrated
struct EquilibratedColumns {
    static constexpr bool kMarksScales = false;
    const uint32_t* column_max;

    struct Factors {
        Four each;
        __device__ __forceinline__ Four times(const Four& v) const { return equilibrated(v, each); }
    };
    template <bool kWhole>
    __device__ __forceinline__ Factors factors(int64_t k, int64_t depth) const {
        return {column_factors<kWhole>(column_max, k, depth, 1)};
    }
};

// @pack_values deps: exponents, put_parts, scaled, spot_facts
// What is known of split values, as bits. Scales are powers of two: marks stand in the lowest bits.
[[maybe_unused]] constexpr int kLosesDigits = 1, kDoesNotFit = 2;
constexpr uint32_t kScaleMarks = kLosesDigits | kDoesNotFit;

[[maybe_unused]] OPWELD_FN float marked(float scale, int known) {
    return __uint_as_float(__float_as_uint(scale) | uint32_t(known));
}
[[maybe_unused]] OPWELD_FN float unmarked(float scale) {
    return __uint_as_float(__float_as_uint(scale) & ~kScaleMarks);
}

// Of values with this largest one, which were multiplied by 2^up.
[[maybe_unused]] OPWELD_FN float packed_scale(float largest, int up, bool loses) {
    const int known = (loses ? kLosesDigits : 0) | (is_in_range(largest) ? 0 : kDoesNotFit);
    return marked(largest == 0.0f ? 0.0f : power_of_two(-up), known);
}

// Packs a spot's values of one row, of which this thread has four from k on; into `scale` what they
// are to be multiplied by, with marks where asked. Gives what is known of them, to the first of
// these threads.
template <int kParts, bool kMarked = false, int kThreads = kSpotThreads>
OPWELD_FN int pack_values(const Four& v, bool exists, half* row, int64_t k, float* scale) {
    const float largest =
        __uint_as_float(largest_of_spot<kThreads>(__float_as_uint(largest_of(v))));
    const int up = lift(exponent_of(largest));
    const Four lifted = scaled(v, power_of_two(up));
    const bool loses = loses_digits<kParts, kThreads>(lifted);
    if (!exists) return 0;
    put_parts<kParts>(row, k, lifted);
    if (threadIdx.x % kThreads) return 0;
    const float found = packed_scale(largest, up, loses);
    *scale = kMarked ? found : unmarked(found);
    return int(__float_as_uint(found) & kScaleMarks);
}

// @split_a_of deps: take_spots, pack_values
// Splits one interval of a band of a; gives what is known of it. `columns` says what its columns
// are multiplied by before.
template <int kParts, bool kWhole, int kWidth, typename Source, typename Columns>
OPWELD_FN int split_a_of(const Source& source, const Operand& a, const SpotOf<kWidth>& spot,
                         const SpotsOf<kWidth>& spots, const Columns& columns, half* packed,
                         float* scale, int64_t scale_rows, bool packets,
                         TransposeTileOf<kWidth>& tile) {
    const auto factors = columns.template factors<kWhole>(spot.k, spots.k);
    Four v[kOwnRows];
    take_spots<kWhole>(v, source, a, spot, spots, packets, tile);
    int known = 0;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
        const int64_t row = spot.own_row(i), all = spot.batch * spots.rows + row;
        known |= pack_values<kParts, Columns::kMarksScales, SpotsOf<kWidth>::kThreads>(
            factors.times(v[i]), kWhole || row < spots.rows,
            packed + all * spots.intervals * (kParts * kWidth), spot.k,
            scale + (spot.batch * spots.intervals + spot.interval) * scale_rows + row);
    }
    return known;
}

// @tell_call deps: CallState, pack_values
OPWELD_FN void tell(CallHead* call, int known) {
    if (known & kLosesDigits) call->lossy = 1;
    if (known & kDoesNotFit) call->needs_fallback = 1;
}

// @split_spot deps: split_a_of
// What a block does: it splits the spot of this number.
template <int kParts, int kWidth, typename Source, typename Columns>
OPWELD_FN int split_spot(const Source& source, const Operand& a, const SpotsOf<kWidth>& spots,
                         const Columns& columns, half* packed, float* scale, int64_t scale_rows,
                         bool packets, int64_t number) {
    __shared__ TransposeTileOf<kWidth> tile;
    const SpotOf<kWidth> spot(spots, a, number);
    if (packets && spot.is_whole(spots)) {
        return split_a_of<kParts, true>(source, a, spot, spots, columns, packed, scale, scale_rows,
                                        packets, tile);
    }
    return split_a_of<kParts, false>(source, a, spot, spots, columns, packed, scale, scale_rows,
                                     packets, tile);
}

// @split_kernel deps: EquilibratedColumns, Held, split_spot, start_dependents, tell_call
// Splits a: each interval of a row has a scale of its own, so that one pass suffices. `scale`
// is [batch][interval][scale_rows]; that of zeros is zero. The values of a come from `source`.
template <int kParts, typename Source>
static __global__ void __launch_bounds__(256)
    split_kernel(const Source source, const Operand a, const Spots spots, const Held held,
                 half* __restrict__ packed, float* __restrict__ scale, const int64_t scale_rows,
                 CallHead* call, const bool packets) {
    start_dependents();
    const EquilibratedColumns columns{held.column_max};
    tell(call, split_spot<kParts>(source, a, spots, columns, packed, scale, scale_rows, packets,
                                  blockIdx.x));
}

}  // namespace op
