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
    half* packed;          // [batches][n][chunks][64], of one or two parts
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

// @sample_of deps: Operand, Held, to_compute
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
[[maybe_unused]] OPWELD_FN void sync_grid(int* arrived, int times) {
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

// @RowScale deps: RowFacts, Spots, exponents, spot_facts, Held, CallState
// What the facts of a row of b come to: the power of two that it is split under, and below which size
// its values are small. The first interval's block says what belongs to the whole row.
struct RowScale {
    float up, small;
};

template <int kParts>
OPWELD_FN RowScale row_scale(int64_t row, const SpotAt& spot, const Spots& spots, const Held& held,
                             const CallState& call) {
    const float largest = __uint_as_float(call.row_max[row]);
    const unsigned long long units = call.row_sum[row];
    const int up = lift(exponent_of(largest));
    if (spot.interval == 0) {
        held.scale[row] = power_of_two(-up);
        const float others = float(units - in_units(largest)) * kSumUnit;
        const bool alone = stands_out<kParts>(largest, others, float(spots.k - 1));
        if (!is_in_range(largest) || alone) call.head->unfit = call.head->unfit_b = 1;
    }
    return {power_of_two(up), float(units) * kSumUnit / float(spots.k) / 262144.0f};
}

// @split_b_of deps: RowScale, fetch_spots, TurnedTile, equilibrated, put_parts
// Splits one interval of one band of b; returns how many of this thread's values are small beside
// their row's.
struct SplitSpace {
    TurnedTile tile;
    RowScale rows[kBand];
};

template <typename T, int kParts, bool kWhole>
OPWELD_FN unsigned split_b_of(const Operand& b, const SpotAt& spot, const Spots& spots,
                              const Held& held, const CallState& call, bool packets,
                              SplitSpace& space) {
    Four v[kOwnRows];
    fetch_spots<T, kWhole>(v, b, spot, spots, packets);
    const Four factors = column_factors<kWhole>(call.column_max, spot.k, spots.k, -1);
    const int64_t begin = spot.batch * spots.rows, row = spot.row + threadIdx.x;
    const bool across = lies_across(b);
    __syncthreads();  // what stands in shared memory has been read
    if (threadIdx.x < kBand && row < spots.rows) {
        space.rows[threadIdx.x] = row_scale<kParts>(begin + row, spot, spots, held, call);
    }
    if (across) space.tile.lay_out(v);
    __syncthreads();
    if (across) space.tile.pick_up(v);
    unsigned gaps = 0;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
        const int64_t own_row = spot.own_row(i);
        if (!kWhole && own_row >= spots.rows) continue;
        const RowScale of_row = space.rows[own_row - spot.row];
        const Four own = equilibrated(v[i], factors);
        half* packed = held.packed + (begin + own_row) * spots.intervals * (kParts * kInterval);
        put_parts<kParts>(packed, spot.k, own, of_row.up);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            gaps += factors.x[j] != 0.0f && fabsf(own.x[j]) < of_row.small;
        }
    }
    return gaps;
}

template <typename T, int kParts>
OPWELD_FN unsigned split_b_of(const Operand& b, const SpotAt& spot, const Spots& spots,
                              const Held& held, const CallState& call, bool packets,
                              SplitSpace& space) {
    return packets && spot.is_whole(spots)
               ? split_b_of<T, kParts, true>(b, spot, spots, held, call, packets, space)
               : split_b_of<T, kParts, false>(b, spot, spots, held, call, packets, space);
}

// @count_gaps deps: CallState
// Adds what all threads of a block counted.
[[maybe_unused]] OPWELD_FN void count_gaps(unsigned gaps, const CallState& call) {
    __shared__ unsigned counted[8];
#pragma unroll
    for (int step = 16; step; step /= 2) gaps += __shfl_xor_sync(~0u, gaps, step);
    if (threadIdx.x % 32 == 0) counted[threadIdx.x / 32] = gaps;
    if (!__syncthreads_or(gaps != 0) || threadIdx.x) return;
    unsigned long long all = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) all += counted[i];
    atomicAdd(&call.head->gaps, all);
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

// @refresh_held_kernel deps: PlaceOf, Largest, RowFacts, facts_of, split_b_of, count_gaps, finish_held, sync_grid
// Splits b anew where the device finds the copy stale; otherwise returns at once. A cooperative
// launch: all blocks run at a time.
template <typename Fact, typename T>
OPWELD_FN void find_facts(const Lines& lines, const CallState& call, Joint<Fact>& joint) {
    const int64_t blocks = lines.blocks(lines.across == Fact::kOfColumns);
    for (int64_t i = blockIdx.x; i < blocks; i += gridDim.x) {
        facts_of<Fact, T>(lines, i, call, joint);
    }
}

template <typename T, int kParts>
static __global__ void __launch_bounds__(256, 3)
    refresh_held_kernel(const Operand b, const Spots spots, const Lines lines, const Held held,
                        const CallState call) {
    __shared__ Joint<Largest> columns;
    __shared__ Joint<RowFacts> rows;
    __shared__ SplitSpace space;
    if (!call.head->stale) return;
    int* arrived = &call.head->arrived;
    find_facts<Largest, T>(lines, call, columns);
    sync_grid(arrived, 1);
    find_facts<RowFacts, T>(lines, call, rows);
    sync_grid(arrived, 2);
    unsigned gaps = 0;
    const int64_t bands = spots.bands();
    for (int64_t i = blockIdx.x; i < bands * spots.intervals; i += gridDim.x) {
        const PlaceOf place(b, i, bands, spots.intervals);
        const SpotAt spot(spots, place.band, place.interval);
        gaps += split_b_of<T, kParts>(b, spot, spots, held, call, lines.packets, space);
    }
    count_gaps(gaps, call);
    sync_grid(arrived, 3);
    if (blockIdx.x == 0) finish_held<T>(b, spots, held, call);
}

// @anew_kernels deps: PlaceOf, facts_kernel, split_b_of, count_gaps, finish_held
// The same in kernels of their own, of many small blocks that keep the memory busy: where the host
// knows that b has to be split. `call` begins as zeros.
template <typename T, int kParts>
static __global__ void __launch_bounds__(256, 4)
    split_b_kernel(const Operand b, const Spots spots, const Held held, const CallState call,
                   const bool packets) {
    __shared__ SplitSpace space;
    const PlaceOf place(b, blockIdx.x, spots.bands(), spots.intervals);
    const SpotAt spot(spots, place.band, place.interval);
    count_gaps(split_b_of<T, kParts>(b, spot, spots, held, call, packets, space), call);
}

template <typename T>
static __global__ void __launch_bounds__(1024)
    finish_held_kernel(const Operand b, const Spots spots, const Held held, const CallState call) {
    finish_held<T>(b, spots, held, call);
}

}  // namespace op
