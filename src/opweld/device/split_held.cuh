// The split copy of b, which may be kept from call to call: whether it is still b's, and how it is
// made. Three passes: the largest of each column; the largest of each row; the parts.

namespace op {

// @Held deps: half, half_header
// The split copy and what tells whether it is still its operand's, in one block of memory that
// begins as zeros. Calls on two streams may fill it at a time: they write the same bytes,
// and the samples, which vouch for the rest, last.
struct HeldHead {
    static constexpr int kSamples = 2048;
    int known;  // the samples are those of an operand
    int unfit;  // the operand does not fit its packed form
    int lossy;  // digits of it are lost
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
    int unfit;    // an operand does not fit its packed form
    int lossy;    // digits of an operand are lost, which may count
    int again;    // the float32 kernel makes the product: operands are unfit, or lost digits count
    int stale;    // the split copy of b has to be made
    int arrived;  // blocks that reached a barrier of the grid
};

struct CallState {
    CallHead* head;
    uint32_t* column_max;  // [k]
    uint32_t* row_max;     // [batches][n] bits of the largest |b[n, .]| / 2^c
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
    if (threadIdx.x == 0) {
        *call.head = {stale ? 0 : held.head->unfit, stale ? 0 : held.head->lossy, 0, stale, 0};
    }
    if (!stale) return;
    for (int64_t i = threadIdx.x; i < k; i += 1024) call.column_max[i] = 0;
    for (int64_t i = threadIdx.x; i < batches * n; i += 1024) call.row_max[i] = 0;
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

// @row_scale deps: Spots, exponents, Held, CallState
// The power of two that a row of b is split under. The first interval's block says what belongs to
// the whole row.
[[maybe_unused]] OPWELD_FN float row_scale(int64_t row, const SpotAt& spot, const Held& held,
                                           const CallState& call) {
    const float largest = __uint_as_float(call.row_max[row]);
    const int up = lift(exponent_of(largest));
    if (spot.interval == 0) {
        held.scale[row] = power_of_two(-up);
        // Where columns beyond 2^61 are not brought to one, a sum could overflow and not a chain.
        if (!is_in_range(largest) || largest >= 4.0f) call.head->unfit = 1;
    }
    return power_of_two(up);
}

// @split_b_of deps: row_scale, spot_facts, fetch_spots, TurnedTile, equilibrated, put_parts
// Splits one interval of one band of b.
struct SplitSpace {
    TurnedTile tile;
    float up[kBand];
};

template <typename T, int kParts, bool kWhole>
OPWELD_FN void split_b_of(const Operand& b, const SpotAt& spot, const Spots& spots, const Held& held,
                          const CallState& call, bool packets, SplitSpace& space) {
    Four v[kOwnRows];
    fetch_spots<kWhole>(v, InMemory<T>{static_cast<const T*>(b.data)}, b, spot, spots, packets);
    const Four factors = column_factors<kWhole>(call.column_max, spot.k, spots.k, -1);
    const int64_t begin = spot.batch * spots.rows, row = spot.row + threadIdx.x;
    const bool across = lies_across(b);
    __syncthreads();  // what stands in shared memory has been read
    if (threadIdx.x < kBand && row < spots.rows) {
        space.up[threadIdx.x] = row_scale(begin + row, spot, held, call);
    }
    if (across) space.tile.lay_out(v);
    __syncthreads();
    if (across) space.tile.pick_up(v);
    bool loses = false;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
        const int64_t own_row = spot.own_row(i);
        const bool exists = kWhole || own_row < spots.rows;
        const float up = exists ? space.up[own_row - spot.row] : 0.0f;
        const Four lifted = scaled(equilibrated(v[i], factors), up);
        loses |= loses_digits<kParts>(lifted);
        if (!exists) continue;
        half* packed = held.packed + (begin + own_row) * spots.intervals * (kParts * kInterval);
        put_parts<kParts>(packed, spot.k, lifted);
    }
    if (loses) call.head->lossy = 1;
}

template <typename T, int kParts>
OPWELD_FN void split_b_of(const Operand& b, const SpotAt& spot, const Spots& spots, const Held& held,
                          const CallState& call, bool packets, SplitSpace& space) {
    if (packets && spot.is_whole(spots)) {
        split_b_of<T, kParts, true>(b, spot, spots, held, call, packets, space);
    } else {
        split_b_of<T, kParts, false>(b, spot, spots, held, call, packets, space);
    }
}

// @finish_held deps: sample_of, Spots, CallState
// What one block does when all rows are split: it vouches for the copy. Of a nothing is known yet.
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
        held.head->lossy = call.head->lossy;
        held.head->unfit = call.head->unfit;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) held.head->known = 1;
}

// @refresh_held_kernel deps: PlaceOf, Largest, facts_of, split_b_of, finish_held, sync_grid
// Splits b anew where the device finds the copy stale; otherwise returns at once. A cooperative
// launch: all blocks run at a time.
// Apart, for its registers are not the splitting's.
template <typename Fact, typename T>
static __device__ __noinline__ void find_facts(const Lines& lines, const CallState& call, Joint<Fact>& joint) {
    const int64_t blocks = lines.blocks(lines.across == Fact::kOfColumns);
    for (int64_t i = blockIdx.x; i < blocks; i += gridDim.x) {
        facts_of<Fact, T>(lines, i, call, joint);
    }
}

template <typename T, int kParts>
static __global__ void __launch_bounds__(256, 3)
    refresh_held_kernel(const Operand b, const Spots spots, const Lines lines, const Held held,
                        const CallState call) {
    __shared__ Joint<Largest<true>> columns;
    __shared__ Joint<Largest<false>> rows;
    __shared__ SplitSpace space;
    if (!call.head->stale) return;
    int* arrived = &call.head->arrived;
    find_facts<Largest<true>, T>(lines, call, columns);
    sync_grid(arrived, 1);
    find_facts<Largest<false>, T>(lines, call, rows);
    sync_grid(arrived, 2);
    const int64_t bands = spots.bands();
    for (int64_t i = blockIdx.x; i < bands * spots.intervals; i += gridDim.x) {
        const PlaceOf place(b, i, bands, spots.intervals);
        const SpotAt spot(spots, place.band, place.interval);
        split_b_of<T, kParts>(b, spot, spots, held, call, lines.packets, space);
    }
    sync_grid(arrived, 3);
    if (blockIdx.x == 0) finish_held<T>(b, spots, held, call);
}

// @split_b_kernel deps: PlaceOf, split_b_of
// The same in kernels of their own, of many small blocks that keep the memory busy: where the host
// knows that b has to be split. `call` begins as zeros.
template <typename T, int kParts>
static __global__ void __launch_bounds__(256, 4)
    split_b_kernel(const Operand b, const Spots spots, const Held held, const CallState call,
                   const bool packets) {
    __shared__ SplitSpace space;
    const PlaceOf place(b, blockIdx.x, spots.bands(), spots.intervals);
    const SpotAt spot(spots, place.band, place.interval);
    split_b_of<T, kParts>(b, spot, spots, held, call, packets, space);
}

// @finish_held_kernel deps: finish_held
template <typename T>
static __global__ void __launch_bounds__(1024)
    finish_held_kernel(const Operand b, const Spots spots, const Held held, const CallState call) {
    finish_held<T>(b, spots, held, call);
}

}  // namespace op
