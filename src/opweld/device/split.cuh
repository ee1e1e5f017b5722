// Operands of tensor-core products in packed form: float32 values as two half-precision parts, scaled
// by powers of two so that nothing is lost that the float32 product would have kept.
//
// a packed operand: [batch][row][chunk][64]; what a chunk holds stands at Chunks.
// a = (upper + lower) * a_scale[batch][interval][row] / 2^c[k], b = (upper + lower) * b_scale[row] * 2^c[k];
// c[k] is the exponent of the largest |b[., k]|: with it no column of b is small beside the others.

namespace op {

// @kInterval deps:
constexpr int kInterval = 64;  // values of k under one scale of a; summed, then promoted

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

// @ReadFour deps: Operand
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
    if (row >= rows) return four;
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
    static constexpr int kSamples = 4096;
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
    uint64_t at = i * count / HeldHead::kSamples + (width ? i * 2654435761ull % width : 0);
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
__global__ void __launch_bounds__(1024)
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
// Four values as upper and lower parts, at their place in a chunk of 32; k is a multiple of 4.
OPWELD_FN void put_split(half* row, int64_t k, const Four& v, float scale) {
    alignas(8) half upper[4], lower[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float x = v.x[i] * scale;
        upper[i] = __float2half_rn(x);
        lower[i] = __float2half_rn(x - __half2float(upper[i]));
    }
    half* chunk = row + k / 32 * 64 + k % 32;
    *reinterpret_cast<uint2*>(chunk) = *reinterpret_cast<const uint2*>(upper);
    *reinterpret_cast<uint2*>(chunk + 32) = *reinterpret_cast<const uint2*>(lower);
}

// @Spots deps:
// How threads divide an operand for splitting: 16 threads take one interval of a row, a block of 256
// the same interval of 16 neighbouring rows.
struct Spots {
    int64_t batches, rows, intervals;

    __host__ __device__ int64_t count() const { return batches * ((rows + 15) / 16) * intervals; }
};

struct SpotAt {
    int64_t batch, row, interval, k;

    __device__ __forceinline__ SpotAt(const Spots& spots, int64_t index) {
        const int64_t bands = (spots.rows + 15) / 16;
        interval = index % spots.intervals;
        row = index / spots.intervals % bands * 16 + threadIdx.x / 16;
        batch = index / spots.intervals / bands;
        k = interval * kInterval + threadIdx.x % 16 * 4;
    }
};

// @largest_of_sixteen deps:
OPWELD_FN uint32_t largest_of_sixteen(uint32_t bits) {
#pragma unroll
    for (int step = 8; step; step /= 2) bits = max(bits, __shfl_xor_sync(~0u, bits, step));
    return bits;
}

// @equilibrated deps: exponents, ReadFour
// Column k divided by 2^c, or multiplied.
OPWELD_FN Four equilibrated(Four v, const uint32_t* column_max, int64_t k, int64_t depth, int sign) {
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

// @refresh_held_kernel deps: find_column_max, sample_of, kInterval, exponents, sync_grid, put_split, Spots, equilibrated, largest_of_sixteen
// Splits b anew where the copy is stale; otherwise returns at once. A cooperative launch.
template <typename T>
__global__ void __launch_bounds__(256)
    refresh_held_kernel(const Operand b, const int64_t batches, const int64_t n, const int64_t k,
                        const Held held, const CallState call, const bool packets) {
    if (!call.head->stale) return;
    int* arrived = &call.head->arrived;
    const Spots spots{batches, n, (k + kInterval - 1) / kInterval};
    find_column_max<T>(b, batches, n, k, call.column_max, packets);
    sync_grid(arrived, 1);
    for (int64_t i = blockIdx.x; i < spots.count(); i += gridDim.x) {
        const SpotAt spot(spots, i);
        Four v = read_four<T>(b, spot.batch, spot.row, spot.k, n, k, packets);
        v = equilibrated(v, call.column_max, spot.k, k, -1);
        const uint32_t most = largest_of_sixteen(__float_as_uint(largest_of(v)));
        if (threadIdx.x % 16 == 0 && spot.row < n) {
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
        put_split(held.packed + row * spots.intervals * 128, spot.k, v, power_of_two(up));
        if (spot.interval > 0 || threadIdx.x % 16) continue;
        held.scale[row] = power_of_two(-up);
        if (!is_in_range(largest)) call.head->unfit = call.head->unfit_b = 1;
    }
    for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < k; i += gridDim.x * 256ll) {
        held.column_max[i] = call.column_max[i];
    }
    sync_grid(arrived, 3);
    if (blockIdx.x > 0) return;
    for (int i = threadIdx.x; i < HeldHead::kSamples; i += 256) {
        held.head->samples[i] = sample_of<T>(b, i, batches, n, k);
    }
    if (threadIdx.x == 0) {
        held.head->unfit = call.head->unfit_b;
        held.head->known = 1;
    }
}

// @split_kernel deps: kInterval, exponents, ReadFour, CallState, put_split, Spots, equilibrated, largest_of_sixteen, dependents
// Splits a: each interval of a row has a scale of its own, so that one pass suffices.
template <typename T>
__global__ void __launch_bounds__(256)
    split_kernel(const Operand a, const int64_t batches, const int64_t m, const int64_t k,
                 const uint32_t* __restrict__ column_max, half* __restrict__ packed,
                 float* __restrict__ scale, const int64_t scale_rows, CallHead* call,
                 const bool packets) {
    start_dependents();
    const Spots spots{batches, m, (k + kInterval - 1) / kInterval};
    for (int64_t i = blockIdx.x; i < spots.count(); i += gridDim.x) {
        const SpotAt spot(spots, i);
        Four v = read_four<T>(a, spot.batch, spot.row, spot.k, m, k, packets);
        v = equilibrated(v, column_max, spot.k, k, 1);
        const float largest = __uint_as_float(largest_of_sixteen(__float_as_uint(largest_of(v))));
        if (spot.row >= m) continue;
        const int up = lift(exponent_of(largest));
        put_split(packed + (spot.batch * m + spot.row) * spots.intervals * 128, spot.k, v, power_of_two(up));
        if (threadIdx.x % 16 == 0) {
            scale[(spot.batch * spots.intervals + spot.interval) * scale_rows + spot.row] = power_of_two(-up);
            if (!is_in_range(largest)) call->unfit = 1;
        }
    }
}

}  // namespace op
