// Operands of tensor-core products in packed form: float32 values as two half-precision parts, scaled
// by powers of two so that nothing is lost that the float32 product would have kept.
//
// a packed operand: [batch][row][chunk][64]; what a chunk holds stands at Chunks.
// a = (upper + lower) * a_scale[batch][interval][row] / 2^c[k], b = (upper + lower) * b_scale[row] * 2^c[k];
// c[k] is the exponent of the largest |b[., k]|: with it no column of b is small beside the others.

namespace op {

// @kInterval deps:
constexpr int kInterval = 64;  // values of k of a row of a under one scale

static inline int64_t interval_count(int64_t k) { return (k + kInterval - 1) / kInterval; }

// @exponents deps:
// floor(log2 |x|) of a normal number; -127 of zero and subnormal numbers, 128 of Inf and NaN
OPWELD_FN int exponent_of(float x) { return int(__float_as_uint(x) >> 23 & 255) - 127; }

// 2^e for -126 <= e <= 127
OPWELD_FN float power_of_two(int e) { return __uint_as_float(uint32_t(127 + e) << 23); }

// What a largest value of this exponent is multiplied by to reach 2^14 <= |x| < 2^15.
OPWELD_FN int lift(int exponent) { return exponent == -127 ? 0 : min(max(14 - exponent, -66), 126); }

// Whether such a scale keeps what float32 would keep: sums can neither overflow before they are
// scaled back nor fall among the subnormal numbers.
OPWELD_FN bool is_in_range(float largest) {
    const int e = exponent_of(largest);
    return largest == 0.0f || (e >= -110 && e <= 80);
}

// The exponent that column k of b is divided by and column k of a multiplied by.
OPWELD_FN int column_exponent(uint32_t largest_bits) {
    const int e = exponent_of(__uint_as_float(largest_bits));
    return e == -127 ? 0 : min(max(e, -60), 60);
}

// @ReadFour deps: Operand, load_vector, to_compute
// Four neighbouring values along k of one row, as float32; zero outside the operand.
struct Four {
    float x[4];
};

OPWELD_FN float largest_of(const Four& v) {
    // not fmaxf, which passes over NaN: bit patterns of |x| are ordered, NaN above all
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) most = max(most, __float_as_uint(v.x[i]) & 0x7FFFFFFFu);
    return __uint_as_float(most);
}

template <typename T>
OPWELD_FN Four read_four(const Operand& from, int64_t batch, int64_t row, int64_t k, int64_t rows,
                         int64_t depth, bool packets) {
    Four four{};
    if (row >= rows || k >= depth) return four;
    const T* p = static_cast<const T*>(from.data) + batch * from.batch + row * from.row + k * from.inner;
    if (packets && k + 4 <= depth) {
        const auto values = load_vector<4>(p);
#pragma unroll
        for (int i = 0; i < 4; ++i) four.x[i] = to_compute(values.lane[i]);
        return four;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (k + i < depth) four.x[i] = to_compute(p[i * from.inner]);
    }
    return four;
}

// @Held deps: half, half_header
// The split copy of an operand, and what tells whether it is still that operand's, in one block of
// memory that begins as zeros. Calls on two streams may fill it at a time: they write the same bytes,
// and the samples, which vouch for the rest, last.
struct HeldHead {
    static constexpr int kSamples = 2048;
    int known;  // the samples are those of an operand
    int unfit;  // the operand does not fit its packed form
    int gaps;   // it has many values that are small beside their row's
    uint32_t samples[kSamples];
};

struct Held {
    HeldHead* head;
    uint32_t* column_max;  // [k] bits of the largest |b[., k]|
    float* scale;          // [batches][n]
    half* packed;          // [batches][n][chunks][64]
};

// @aligned_size deps:
OPWELD_HOST_FN int64_t aligned_size(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// @CallState deps:
// What the kernels of one call tell each other, in the call's workspace.
struct CallHead {
    int unfit;    // an operand does not fit its packed form: the float32 kernel makes the product
    int unfit_b;  // b does not
    int stale;    // the split copy of b has to be made
    int arrived;  // blocks that reached a barrier of the grid
    unsigned long long gaps;  // values of b that are small beside their row's
};

struct CallState {
    CallHead* head;
    uint32_t* column_max;  // [k]
    uint32_t* row_max;     // [batches][n] bits of the largest |b[n, .]| / 2^c
    unsigned long long* row_sum;  // [batches][n] sum of |b[n, .]| / 2^c, in units of 2^-40
};

// @sample_of deps: Operand, Held
// Sample i of an operand: spread over it, at no fixed distance, so that a pattern is not met again.
template <typename T>
OPWELD_FN uint32_t sample_of(const Operand& b, int i, int64_t batches, int64_t n, int64_t k) {
    const uint64_t count = uint64_t(batches) * n * k, width = count / HeldHead::kSamples;
    // a multiple of the golden ratio, as a fraction of 2^32, chooses within sample i's share
    const uint64_t within = uint64_t(uint32_t(i) * 2654435761u) * uint32_t(min(width, 0xFFFFFFFFul));
    uint64_t at = i * count / HeldHead::kSamples + (within >> 32);
    const bool dense = b.inner == 1 && b.row == k && b.batch == n * k;
    if (!dense) {
        const uint64_t row = at / k;
        at = row / n * b.batch + row % n * b.row + at % k * b.inner;
    }
    return __float_as_uint(to_compute(static_cast<const T*>(b.data)[at]));
}

// @check_held_kernel deps: sample_of, CallState
// Compares b with the samples kept of it: are they alike, the split copy still holds. One block.
template <typename T>
static __global__ void __launch_bounds__(1024)
    check_held_kernel(const Operand b, const int64_t batches, const int64_t n, const int64_t k,
                      const Held held, const CallState call) {
    bool differs = held.head->known == 0;
#pragma unroll
    for (int i = threadIdx.x; i < HeldHead::kSamples; i += 1024) {
        differs |= sample_of<T>(b, i, batches, n, k) != held.head->samples[i];
    }
    const int stale = __syncthreads_or(differs);
    if (threadIdx.x == 0) *call.head = {stale ? 0 : held.head->unfit, 0, stale, 0, 0};
    if (!stale) return;
    for (int64_t i = threadIdx.x; i < k; i += 1024) call.column_max[i] = 0;
    for (int64_t i = threadIdx.x; i < batches * n; i += 1024) call.row_max[i] = 0;
    for (int64_t i = threadIdx.x; i < batches * n; i += 1024) call.row_sum[i] = 0;
}

// @sync_grid deps:
// All blocks of the grid, which run at the same time, have come here for the `times`th time.
OPWELD_FN void sync_grid(int* arrived, int times) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (*static_cast<volatile int*>(arrived) < times * int(gridDim.x)) {
        }
        __threadfence();
    }
    __syncthreads();
}

// @put_split deps: half, half_header
// Four values as upper and lower parts, at their place among a row's chunks of 32.
OPWELD_FN void put_split(half* row, int64_t place, const Four& v, float scale) {
    alignas(8) half upper[4], lower[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float x = v.x[i] * scale;
        upper[i] = __float2half_rn(x);
        lower[i] = __float2half_rn(x - __half2float(upper[i]));
    }
    half* chunk = row + place / 32 * 64 + place % 32;
    *reinterpret_cast<uint2*>(chunk) = *reinterpret_cast<const uint2*>(upper);
    *reinterpret_cast<uint2*>(chunk + 32) = *reinterpret_cast<const uint2*>(lower);
}

// @Spots deps: kInterval
// How threads divide an operand for splitting: 16 neighbours take one interval of a row, four values
// each, a block of 256 the same interval of a band of rows, two rows a thread.
[[maybe_unused]] constexpr int kSpotThreads = kInterval / 4, kSpotRows = 256 / kSpotThreads,
                               kBand = 2 * kSpotRows;

struct Spots {
    int64_t batches, rows, k, intervals;

    __host__ __device__ int64_t bands() const { return batches * ((rows + kBand - 1) / kBand); }
};

// One interval of one band, and this thread's place in it.
struct SpotAt {
    int64_t batch, row, interval, k;  // the first row of the band; this thread's first k

    __device__ __forceinline__ SpotAt(const Spots& spots, int64_t band, int64_t interval_at)
        : interval(interval_at) {
        const int64_t bands = (spots.rows + kBand - 1) / kBand;
        batch = band / bands;
        row = band % bands * kBand;
        k = interval * kInterval + threadIdx.x % kSpotThreads * 4;
    }
    // the row of this thread's first or second four values
    __device__ __forceinline__ int64_t own_row(int i) const {
        return row + threadIdx.x / kSpotThreads + i * kSpotRows;
    }
};

// @spot_facts deps: Spots, ReadFour
// The largest absolute value among the threads of a spot, and the sum of the others.
OPWELD_FN uint32_t largest_of_spot(uint32_t bits) {
#pragma unroll
    for (int step = kSpotThreads / 2; step; step /= 2) {
        bits = max(bits, __shfl_xor_sync(~0u, bits, step));
    }
    return bits;
}

// The sum without the largest: subtracted from a sum it would take small values with it.
OPWELD_FN float sum_below(const Four& v, float largest) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += fabsf(v.x[i]) < largest ? fabsf(v.x[i]) : 0.0f;
    return sum;
}

template <typename Value>
OPWELD_FN Value sum_of_spot(Value sum) {
#pragma unroll
    for (int step = kSpotThreads / 2; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

// Whether a value stands out so far that the others, split under its scale, lose digits which would
// count where it is multiplied by little: 2^14 times their mean.
OPWELD_FN bool stands_out(float largest, float sum_of_others, float count_of_others) {
    return sum_of_others > 0.0f && sum_of_others * 16384.0f < largest * count_of_others;
}

// @equilibrated deps: exponents, ReadFour
// Columns k and on divided by 2^c, or multiplied (`sign` 1). Where a column of b is zero so are all
// its products: what stands in a does not count, unless it is no number.
OPWELD_FN float column_factor(uint32_t largest_bits, int sign) {
    return largest_bits == 0 ? 0.0f : power_of_two(sign * column_exponent(largest_bits));
}

OPWELD_FN Four equilibrated(Four v, const uint32_t* column_max, int64_t k, int64_t depth, int sign) {
    if (k + 4 <= depth) {
        const uint4 most = *reinterpret_cast<const uint4*>(column_max + k);
        const uint32_t bits[4] = {most.x, most.y, most.z, most.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) v.x[i] *= column_factor(bits[i], sign);
        return v;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (k + i < depth) v.x[i] *= column_factor(column_max[k + i], sign);
    }
    return v;
}

// @load_spots deps: ReadFour, Spots
// Four values of each of this thread's two rows. Where rows lie nearer than neighbours in k they are
// read along rows, and turned in shared memory.
using TurnedTile = float[kBand][kInterval + 1];

template <typename T>
OPWELD_FN void load_spots(Four (&v)[2], const Operand& from, const SpotAt& spot, const Spots& spots,
                          bool packets, TurnedTile& tile) {
    if (from.row >= from.inner) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            v[i] = read_four<T>(from, spot.batch, spot.own_row(i), spot.k, spots.rows, spots.k, packets);
        }
        return;
    }
    const int x = threadIdx.x % kBand;
    const int64_t begin = spot.interval * kInterval;
    const T* p = static_cast<const T*>(from.data) + spot.batch * from.batch + (spot.row + x) * from.row;
    __syncthreads();  // the tile before has been read
#pragma unroll
    for (int y = threadIdx.x / kBand; y < kInterval; y += 256 / kBand) {
        const bool inside = spot.row + x < spots.rows && begin + y < spots.k;
        tile[x][y] = inside ? float(to_compute(p[(begin + y) * from.inner])) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            v[i].x[j] = tile[threadIdx.x / kSpotThreads + i * kSpotRows][threadIdx.x % kSpotThreads * 4 + j];
        }
    }
}

// @PlaceOf deps: Operand
// Two indices of a block, `inner` the one in which neighbouring blocks lie side by side in memory:
// the first of the two where rows of the operand lie nearer than neighbours in k.
struct PlaceOf {
    int64_t band, interval;

    __device__ __forceinline__ PlaceOf(const Operand& from, int64_t index, int64_t bands,
                                       int64_t intervals) {
        const bool across = from.row < from.inner;
        band = across ? index % bands : index / intervals;
        interval = across ? index / bands : index % intervals;
    }
};

// @column_max_of deps: load_spots
// The largest of the columns of one interval of b, over bands first <= i < end.
template <typename T>
OPWELD_FN void column_max_of(const Operand& b, const Spots& spots, int64_t interval, int64_t first,
                             int64_t end, uint32_t* column_max, bool packets, TurnedTile& tile,
                             uint32_t (&most)[kInterval]) {
    uint32_t own[4] = {};
    for (int64_t band = first; band < end; ++band) {
        Four v[2];
        load_spots<T>(v, b, SpotAt(spots, band, interval), spots, packets, tile);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const uint32_t upper = __float_as_uint(fabsf(v[0].x[j]));
            own[j] = max(own[j], max(upper, __float_as_uint(fabsf(v[1].x[j]))));
        }
    }
    if (threadIdx.x < kInterval) most[threadIdx.x] = 0;
    __syncthreads();
    const int at = threadIdx.x % kSpotThreads * 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) atomicMax(&most[at + j], own[j]);
    __syncthreads();
    const int64_t k = interval * kInterval + threadIdx.x;
    if (threadIdx.x < kInterval && k < spots.k) atomicMax(column_max + k, most[threadIdx.x]);
    __syncthreads();
}

// @row_facts_of deps: load_spots, equilibrated, spot_facts, CallState
// The largest and the sum of the rows of one band of b, equilibrated, over intervals first <= i < end.
// A sum in integers is the same in any order.
[[maybe_unused]] constexpr float kSumUnit = 1.0f / (1ull << 40), kSumLimit = 4.0f;

OPWELD_FN unsigned long long in_units(float size) {
    return static_cast<unsigned long long>(fminf(size, kSumLimit) / kSumUnit);
}

template <typename T>
OPWELD_FN void row_facts_of(const Operand& b, const Spots& spots, int64_t band, int64_t first,
                            int64_t end, const CallState& call, bool packets, TurnedTile& tile) {
    uint32_t most[2] = {};
    unsigned long long sum[2] = {};
    for (int64_t interval = first; interval < end; ++interval) {
        const SpotAt spot(spots, band, interval);
        Four v[2];
        load_spots<T>(v, b, spot, spots, packets, tile);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            v[i] = equilibrated(v[i], call.column_max, spot.k, spots.k, -1);
            most[i] = max(most[i], __float_as_uint(largest_of(v[i])));
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[i] += in_units(fabsf(v[i].x[j]));
        }
    }
    const SpotAt spot(spots, band, first);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        most[i] = largest_of_spot(most[i]);
        sum[i] = sum_of_spot(sum[i]);
        if (threadIdx.x % kSpotThreads || spot.own_row(i) >= spots.rows) continue;
        const int64_t row = spot.batch * spots.rows + spot.own_row(i);
        atomicMax(call.row_max + row, most[i]);
        atomicAdd(call.row_sum + row, sum[i]);
    }
}

// @split_b_of deps: load_spots, equilibrated, spot_facts, row_facts_of, exponents, put_split, Held
// Splits one interval of one band of b; returns how many of this thread's values are small beside
// their row's.
template <typename T>
OPWELD_FN unsigned split_b_of(const Operand& b, const SpotAt& spot, const Spots& spots,
                              const Held& held, const CallState& call, bool packets,
                              TurnedTile& tile) {
    unsigned gaps = 0;
    Four v[2];
    load_spots<T>(v, b, spot, spots, packets, tile);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (spot.own_row(i) >= spots.rows) continue;
        const int64_t row = spot.batch * spots.rows + spot.own_row(i);
        const float largest = __uint_as_float(call.row_max[row]);
        const float sum = float(call.row_sum[row]) * kSumUnit;
        const float small = sum / float(spots.k) / 262144.0f;
        const int up = lift(exponent_of(largest));
        const Four own = equilibrated(v[i], call.column_max, spot.k, spots.k, -1);
        half* packed = held.packed + row * spots.intervals * (2 * kInterval);
        put_split(packed, spot.k, own, power_of_two(up));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const bool is_value = spot.k + j < spots.k && call.column_max[spot.k + j];
            gaps += is_value && fabsf(own.x[j]) < small;
        }
        if (spot.interval > 0 || threadIdx.x % kSpotThreads) continue;
        held.scale[row] = power_of_two(-up);
        const unsigned long long own_units = in_units(largest);
        const float others = float(call.row_sum[row] - own_units) * kSumUnit;
        const bool alone = stands_out(largest, others, float(spots.k - 1));
        if (!is_in_range(largest) || alone) call.head->unfit = call.head->unfit_b = 1;
    }
    return gaps;
}

// @count_gaps deps: CallState
// Adds what all threads of a block counted.
OPWELD_FN void count_gaps(unsigned gaps, const CallState& call) {
#pragma unroll
    for (int step = 16; step; step /= 2) gaps += __shfl_xor_sync(~0u, gaps, step);
    if (gaps && threadIdx.x % 32 == 0) {
        atomicAdd(&call.head->gaps, static_cast<unsigned long long>(gaps));
    }
}

// @finish_held deps: sample_of, Spots, CallState
// What one block does when all rows are split: it vouches for the copy.
template <typename T>
OPWELD_FN void finish_held(const Operand& b, const Spots& spots, const Held& held,
                           const CallState& call) {
    for (int64_t i = threadIdx.x; i < spots.k; i += blockDim.x) {
        held.column_max[i] = call.column_max[i];
    }
    for (int i = threadIdx.x; i < HeldHead::kSamples; i += blockDim.x) {
        held.head->samples[i] = sample_of<T>(b, i, spots.batches, spots.rows, spots.k);
    }
    if (threadIdx.x == 0) {
        // By chance one value in 2^18 is so small beside the mean of its row; zeros count, too.
        const unsigned long long count = spots.batches * spots.rows * spots.k;
        held.head->gaps = call.head->gaps > count >> 15;
        held.head->unfit = call.head->unfit_b;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) held.head->known = 1;
}

// @refresh_held_kernel deps: column_max_of, row_facts_of, split_b_of, count_gaps, finish_held, sync_grid
// Splits b anew where the device finds the copy stale; otherwise returns at once. A cooperative
// launch: all blocks run at a time.
template <typename T>
static __global__ void __launch_bounds__(256, 4)
    refresh_held_kernel(const Operand b, const Spots spots, const Held held, const CallState call,
                        const bool packets) {
    __shared__ TurnedTile tile;
    __shared__ uint32_t most[kInterval];
    if (!call.head->stale) return;
    int* arrived = &call.head->arrived;
    const int64_t bands = spots.bands(), count = bands * spots.intervals;
    for (int64_t i = blockIdx.x; i < spots.intervals * ((bands + 15) / 16); i += gridDim.x) {
        const int64_t first = i / spots.intervals * 16;
        column_max_of<T>(b, spots, i % spots.intervals, first, min(first + 16, bands),
                         call.column_max, packets, tile, most);
    }
    sync_grid(arrived, 1);
    for (int64_t i = blockIdx.x; i < bands * ((spots.intervals + 15) / 16); i += gridDim.x) {
        const int64_t first = i / bands * 16;
        row_facts_of<T>(b, spots, i % bands, first, min(first + 16, spots.intervals), call, packets,
                        tile);
    }
    sync_grid(arrived, 2);
    unsigned gaps = 0;
    for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
        const SpotAt spot(spots, i / spots.intervals, i % spots.intervals);
        gaps += split_b_of<T>(b, spot, spots, held, call, packets, tile);
    }
    count_gaps(gaps, call);
    sync_grid(arrived, 3);
    if (blockIdx.x == 0) finish_held<T>(b, spots, held, call);
}

// @anew_kernels deps: PlaceOf, column_max_of, row_facts_of, split_b_of, count_gaps, finish_held
// The same in kernels of their own, of many small blocks that keep the memory busy: where the host
// knows that b has to be split. `call` begins as zeros.
[[maybe_unused]] constexpr int kTogether = 4;

template <typename T>
static __global__ void __launch_bounds__(256)
    column_max_kernel(const Operand b, const Spots spots, const CallState call, const bool packets) {
    __shared__ TurnedTile tile;
    __shared__ uint32_t most[kInterval];
    const int64_t groups = (spots.bands() + kTogether - 1) / kTogether;
    const PlaceOf place(b, blockIdx.x, groups, spots.intervals);
    const int64_t first = place.band * kTogether;
    column_max_of<T>(b, spots, place.interval, first, min(first + kTogether, spots.bands()),
                     call.column_max, packets, tile, most);
}

template <typename T>
static __global__ void __launch_bounds__(256, 5)
    row_facts_kernel(const Operand b, const Spots spots, const CallState call, const bool packets) {
    __shared__ TurnedTile tile;
    const int64_t groups = (spots.intervals + kTogether - 1) / kTogether;
    const PlaceOf place(b, blockIdx.x, spots.bands(), groups);
    const int64_t first = place.interval * kTogether;
    row_facts_of<T>(b, spots, place.band, first, min(first + kTogether, spots.intervals), call,
                    packets, tile);
}

template <typename T>
static __global__ void __launch_bounds__(256)
    split_b_kernel(const Operand b, const Spots spots, const Held held, const CallState call,
                   const bool packets) {
    __shared__ TurnedTile tile;
    const PlaceOf place(b, blockIdx.x, spots.bands(), spots.intervals);
    const SpotAt spot(spots, place.band, place.interval);
    count_gaps(split_b_of<T>(b, spot, spots, held, call, packets, tile), call);
}

template <typename T>
static __global__ void __launch_bounds__(1024)
    finish_held_kernel(const Operand b, const Spots spots, const Held held, const CallState call) {
    finish_held<T>(b, spots, held, call);
}

// @split_kernel deps: PlaceOf, load_spots, exponents, CallState, Held, put_split, equilibrated, spot_facts, start_dependents
// Splits a: each interval of a row has a scale of its own, so that one pass suffices. `scale`
// is [batch][interval][scale_rows].
template <typename T>
static __global__ void __launch_bounds__(256)
    split_kernel(const Operand a, const Spots spots, const Held held, half* __restrict__ packed,
                 float* __restrict__ scale, const int64_t scale_rows, CallHead* call,
                 const bool packets) {
    __shared__ TurnedTile tile;
    start_dependents();
    const PlaceOf place(a, blockIdx.x, spots.bands(), spots.intervals);
    const SpotAt spot(spots, place.band, place.interval);
    Four v[2];
    load_spots<T>(v, a, spot, spots, packets, tile);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        v[i] = equilibrated(v[i], held.column_max, spot.k, spots.k, 1);
        const float largest = __uint_as_float(largest_of_spot(__float_as_uint(largest_of(v[i]))));
        const float others = sum_of_spot(sum_below(v[i], largest));
        const int64_t row = spot.own_row(i);
        if (row >= spots.rows) continue;
        const int up = lift(exponent_of(largest));
        half* own = packed + (spot.batch * spots.rows + row) * spots.intervals * (2 * kInterval);
        put_split(own, spot.k, v[i], power_of_two(up));
        if (threadIdx.x % kSpotThreads) continue;
        scale[(spot.batch * spots.intervals + spot.interval) * scale_rows + row] = power_of_two(-up);
        const bool lost = held.head->gaps && stands_out(largest, others, kInterval - 1);
        if (!is_in_range(largest) || lost) call->unfit = 1;
    }
}

}  // namespace op
