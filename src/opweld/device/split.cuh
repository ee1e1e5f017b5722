// Operands of tensor-core products in packed form: float32 values as two half-precision parts, scaled
// by powers of two so that nothing is lost that the float32 product would have kept.
//
// a packed operand: [batch][row][chunk][64]; what a chunk holds stands at Chunks.
// a = (upper + lower) * a_scale[batch][interval][row] / 2^c[k], b = (upper + lower) * b_scale[row] * 2^c[k];
// c[k] is the exponent of the largest |b[., k]|: with it no column of b is small beside the others.

namespace op {

// @kInterval deps:
// Values of k whose products the tensor cores sum before the sum is promoted; of a, under one scale.
// Where k is short the second half of each interval stays zero: the sums are promoted twice as often.
constexpr int kInterval = 64;
constexpr int kShortestLong = 256;

static inline int interval_depth(int64_t k) { return k < kShortestLong ? kInterval / 2 : kInterval; }
static inline int64_t interval_count(int64_t k) {
    return (k + interval_depth(k) - 1) / interval_depth(k);
}

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

// The exponent that column k of b is divided by and column k of a multiplied by. Of a column of
// zeros the least: what a has there must not hide its other values.
OPWELD_FN int column_exponent(uint32_t largest_bits) {
    const int e = exponent_of(__uint_as_float(largest_bits));
    return min(max(e, -60), 60);
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
};

struct CallState {
    CallHead* head;
    uint32_t* column_max;  // [k]
    uint32_t* row_max;     // [batches][n] bits of the largest |b[n, .]| / 2^c
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
// Compares b with the samples kept of it: are they alike, and did the host see no change, then the
// split copy still holds. One block.
template <typename T>
static __global__ void __launch_bounds__(1024)
    check_held_kernel(const Operand b, const int64_t batches, const int64_t n, const int64_t k,
                      const Held held, const CallState call, const int changed) {
    bool differs = changed || held.head->known == 0;
#pragma unroll
    for (int i = threadIdx.x; i < HeldHead::kSamples; i += 1024) {
        differs |= sample_of<T>(b, i, batches, n, k) != held.head->samples[i];
    }
    const int stale = __syncthreads_or(differs);
    if (threadIdx.x == 0) *call.head = {stale ? 0 : held.head->unfit, 0, stale, 0};
    if (!stale) return;
    for (int64_t i = threadIdx.x; i < k; i += 1024) call.column_max[i] = 0;
    for (int64_t i = threadIdx.x; i < batches * n; i += 1024) call.row_max[i] = 0;
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
// each, a block of 256 the same interval of 16 neighbouring rows.
constexpr int kSpotThreads = kInterval / 4, kSpotRows = 256 / kSpotThreads;

struct Spots {
    int64_t batches, rows, k, intervals;
    int depth;

    __host__ __device__ int64_t count() const {
        return batches * ((rows + kSpotRows - 1) / kSpotRows) * intervals;
    }
};

struct SpotAt {
    int64_t batch, row, interval, k, place;

    __device__ __forceinline__ SpotAt(const Spots& spots, int64_t index) {
        const int64_t bands = (spots.rows + kSpotRows - 1) / kSpotRows;
        interval = index % spots.intervals;
        row = index / spots.intervals % bands * kSpotRows + threadIdx.x / kSpotThreads;
        batch = index / spots.intervals / bands;
        set_k(spots);
    }
    __device__ __forceinline__ SpotAt(const Spots& spots, int64_t batch_at, int64_t row_at,
                                      int64_t interval_at)
        : batch(batch_at), row(row_at), interval(interval_at) {
        set_k(spots);
    }
    __device__ __forceinline__ void set_k(const Spots& spots) {
        const int within = threadIdx.x % kSpotThreads * 4;
        place = interval * kInterval + within;
        k = within < spots.depth ? interval * spots.depth + within : spots.k;  // beyond the end
    }
};

// @largest_of_spot deps: Spots
OPWELD_FN uint32_t largest_of_spot(uint32_t bits) {
#pragma unroll
    for (int step = kSpotThreads / 2; step; step /= 2) bits = max(bits, __shfl_xor_sync(~0u, bits, step));
    return bits;
}

// @equilibrated deps: exponents, ReadFour
// Column k divided by 2^c, or multiplied.
OPWELD_FN Four equilibrated(Four v, const uint32_t* column_max, int64_t k, int64_t depth, int sign) {
    if (k + 4 <= depth) {
        const uint4 most = *reinterpret_cast<const uint4*>(column_max + k);
        const uint32_t bits[4] = {most.x, most.y, most.z, most.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) v.x[i] *= power_of_two(sign * column_exponent(bits[i]));
        return v;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (k + i < depth) v.x[i] *= power_of_two(sign * column_exponent(column_max[k + i]));
    }
    return v;
}

// @find_column_max deps: ReadFour, CallState
// The largest of each column: a thread takes four columns of 64 rows.
template <typename T>
OPWELD_FN void find_column_max(const Operand& b, int64_t batches, int64_t n, int64_t k,
                               uint32_t* column_max, bool packets) {
    const int64_t quads = (k + 3) / 4, rows = batches * n, bands = (rows + 63) / 64;
    for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < quads * bands; i += gridDim.x * 256ll) {
        const int64_t at = i % quads * 4, first = i / quads * 64;
        uint32_t most[4] = {};
#pragma unroll 4
        for (int64_t row = first; row < min(first + 64, rows); ++row) {
            const Four v = read_four<T>(b, row / n, row % n, at, n, k, packets);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                most[j] = max(most[j], __float_as_uint(v.x[j]) & 0x7FFFFFFFu);
            }
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (at + j < k) atomicMax(column_max + at + j, most[j]);
        }
    }
}

// @refresh_held_kernel deps: find_column_max, sample_of, exponents, sync_grid, put_split, Spots, equilibrated, largest_of_spot
// Splits b anew where the copy is stale; otherwise returns at once. A cooperative launch.
template <typename T>
static __global__ void __launch_bounds__(256)
    refresh_held_kernel(const Operand b, const Spots spots, const Held held, const CallState call,
                        const bool packets) {
    if (!call.head->stale) return;
    int* arrived = &call.head->arrived;
    const int64_t n = spots.rows, k = spots.k;
    find_column_max<T>(b, spots.batches, n, k, call.column_max, packets);
    sync_grid(arrived, 1);
    for (int64_t i = blockIdx.x; i < spots.count(); i += gridDim.x) {
        const SpotAt spot(spots, i);
        Four v = read_four<T>(b, spot.batch, spot.row, spot.k, n, k, packets);
        v = equilibrated(v, call.column_max, spot.k, k, -1);
        const uint32_t most = largest_of_spot(__float_as_uint(largest_of(v)));
        if (threadIdx.x % kSpotThreads == 0 && spot.row < n) {
            atomicMax(call.row_max + spot.batch * n + spot.row, most);
        }
    }
    sync_grid(arrived, 2);
    for (int64_t i = blockIdx.x; i < spots.count(); i += gridDim.x) {
        const SpotAt spot(spots, i);
        if (spot.row >= n) continue;
        const int64_t row = spot.batch * n + spot.row;
        const float largest = __uint_as_float(call.row_max[row]);
        const int up = lift(exponent_of(largest));
        Four v = read_four<T>(b, spot.batch, spot.row, spot.k, n, k, packets);
        v = equilibrated(v, call.column_max, spot.k, k, -1);
        half* packed = held.packed + row * spots.intervals * (2 * kInterval);
        put_split(packed, spot.place, v, power_of_two(up));
        if (spot.interval > 0 || threadIdx.x % kSpotThreads) continue;
        held.scale[row] = power_of_two(-up);
        if (!is_in_range(largest)) call.head->unfit = call.head->unfit_b = 1;
    }
    for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < k; i += gridDim.x * 256ll) {
        held.column_max[i] = call.column_max[i];
    }
    sync_grid(arrived, 3);
    if (blockIdx.x > 0) return;
    for (int i = threadIdx.x; i < HeldHead::kSamples; i += 256) {
        held.head->samples[i] = sample_of<T>(b, i, spots.batches, n, k);
    }
    if (threadIdx.x == 0) held.head->unfit = call.head->unfit_b;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) held.head->known = 1;
}

// @split_kernel deps: exponents, ReadFour, CallState, put_split, Spots, equilibrated, largest_of_spot, start_dependents
// Splits a: each interval of a row has a scale of its own, so that one pass suffices. Blocks stand
// [batch][band of kSplitRows rows][interval]; `scale` is [batch][interval][scale_rows].
[[maybe_unused]] constexpr int kSplitRows = 2 * kSpotRows;

template <typename T>
static __global__ void __launch_bounds__(256)
    split_kernel(const Operand a, const Spots spots, const uint32_t* __restrict__ column_max,
                 half* __restrict__ packed, float* __restrict__ scale, const int64_t scale_rows,
                 CallHead* call, const bool packets) {
    start_dependents();
    const int64_t m = spots.rows, first = blockIdx.y * int64_t(kSplitRows) + threadIdx.x / kSpotThreads;
    const SpotAt spot(spots, blockIdx.z, first, blockIdx.x);
    Four v[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        v[i] = read_four<T>(a, spot.batch, first + i * kSpotRows, spot.k, m, spots.k, packets);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int64_t row = first + i * kSpotRows;
        v[i] = equilibrated(v[i], column_max, spot.k, spots.k, 1);
        const float largest = __uint_as_float(largest_of_spot(__float_as_uint(largest_of(v[i]))));
        if (row >= m) continue;
        const int up = lift(exponent_of(largest));
        half* own = packed + (spot.batch * m + row) * spots.intervals * (2 * kInterval);
        put_split(own, spot.place, v[i], power_of_two(up));
        if (threadIdx.x % kSpotThreads) continue;
        scale[(spot.batch * spots.intervals + spot.interval) * scale_rows + row] = power_of_two(-up);
        if (!is_in_range(largest)) call->unfit = 1;
    }
}

// @pack_kernel deps: Operand, half, bfloat16
// Rows of 16-bit values as the copy engine wants them: neighbours along k, padded to chunks of 64.
template <typename T>
static __global__ void __launch_bounds__(256)
    pack_kernel(const Operand from, const int64_t rows, const int64_t k, const int64_t pitch,
                T* __restrict__ packed) {
    // A block takes 32 by 32 and turns it where k is not the inner axis.
    __shared__ T tile[32][33];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    const int64_t row = blockIdx.y * 32ll, at = blockIdx.x * 32ll, batch = blockIdx.z;
    const T* source = static_cast<const T*>(from.data) + batch * from.batch;
    const bool along = from.inner <= from.row;
    for (int i = y; i < 32; i += 8) {
        const int r = along ? i : x, c = along ? x : i;
        const bool inside = row + r < rows && at + c < k;
        tile[r][c] = inside ? source[(row + r) * from.row + (at + c) * from.inner] : T(0.0f);
    }
    __syncthreads();
    for (int i = y; i < 32; i += 8) {
        if (row + i < rows) packed[(batch * rows + row + i) * pitch + at + x] = tile[i][x];
    }
}

}  // namespace op
