// The split copy of b, which may be kept from call to call: whether it is still b's, and how it is
// made. Three passes: the largest of each column; the largest and the sum of each row; the parts.

namespace op {

// @Held deps: half, half_header
// The split copy and what tells whether it is still its operand's, in one block of memory that
// begins as zeros. Calls on two streams may fill it at a time: they write the same bytes,
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

}  // namespace op
