// The split copy of b, which may be kept from call to call: whether it is still b's, and how it is
// made. Three passes: the largest of each column; the largest of each row; the parts.

// @cooperative_groups deps:
#include <cooperative_groups.h>

namespace op {

// @Held deps: half, half_header
// The split copy and what tells whether it is still its operand's, in one block of memory that
// begins as zeros. Calls on two streams may fill it at a time: they write the same bytes,
// and the samples, which vouch for the rest, last.
struct HeldHead {
    static constexpr int kSamples = 2048;
    int known;           // the samples are those of an operand
    int needs_fallback;  // the operand does not fit its packed form
    int lossy;           // digits of it are lost
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
    int needs_fallback;  // an operand does not fit its packed form
    int lossy;           // digits of an operand are lost, which may count
    int again;  // the float32 kernel makes the product: operands do not fit, or lost digits count
};

struct CallState {
    CallHead* head;
    uint32_t* column_max;  // [k]
    uint32_t* row_max;     // [batches][n] bits of the largest |b[n, .]| / 2^c
    int* differs;          // [blocks that look whether a held copy is stale]
};

// @sample_of deps: Operand, Held
// Sample i of an operand: spread over it, at no fixed distance, so that a pattern is not met again.
OPWELD_FN uint32_t sample_of(const Operand& b, int i, const Spots& spots) {
    const uint64_t count = uint64_t(spots.batches) * spots.rows * spots.k;
    const uint64_t width = count / HeldHead::kSamples;
    // a multiple of the golden ratio, as a fraction of 2^32, chooses within sample i's share
    const uint64_t within =
        uint64_t(uint32_t(i) * 2654435761u) * uint32_t(min(width, 0xFFFFFFFFul));
    uint64_t at = i * count / HeldHead::kSamples + (within >> 32);
    const bool dense = b.inner == 1 && b.row == spots.k && b.batch == spots.rows * spots.k;
    if (!dense) {
        const uint64_t row = at / spots.k;
        at = row / spots.rows * b.batch + row % spots.rows * b.row + at % spots.k * b.inner;
    }
    return __float_as_uint(static_cast<const float*>(b.data)[at]);
}

// @is_stale deps: cooperative_groups, sample_of
// Whether the split copy is no longer b's: it is known to have `changed`, or is not as the samples
// kept of it. Each block compares a share of them, and learns what the others found. Begins what is
// known of the call.
[[maybe_unused]] OPWELD_FN bool is_stale(const cooperative_groups::grid_group& grid,
                                         const Operand& b, const Spots& spots, const Held& held,
                                         const CallState& call, bool changed) {
    bool differs = changed || held.head->known == 0;
    const int share = (HeldHead::kSamples - 1) / int(gridDim.x) + 1;
    const int from = int(blockIdx.x) * share, end = min(from + share, HeldHead::kSamples);
    for (int i = from + threadIdx.x; i < end; i += blockDim.x) {
        differs |= sample_of(b, i, spots) != held.head->samples[i];
    }
    const int any_of_block = __syncthreads_or(differs);
    const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = first; i < spots.k; i += step) call.column_max[i] = 0;
    for (int64_t i = first; i < spots.batches * spots.rows; i += step) call.row_max[i] = 0;
    if (threadIdx.x == 0) call.differs[blockIdx.x] = any_of_block;
    if (first == 0) *call.head = {held.head->needs_fallback, held.head->lossy, 0};
    grid.sync();
    bool any = false;
    for (int i = threadIdx.x; i < int(gridDim.x); i += blockDim.x) any |= call.differs[i] != 0;
    return __syncthreads_or(any);
}

// @SplitSpace deps: TransposeTile
// The shared memory of a block that looks at a spot of b or splits it.
struct SplitSpace {
    TransposeTile tile;
    uint32_t most[kInterval];  // of its columns
    float up[kBand];           // of its rows
};

// @find_columns deps: SplitSpace, CallState, spot_facts
// The largest values of a spot's columns go to those of the whole columns.
OPWELD_FN void find_columns(const Four (&v)[kOwnRows], const SpotAt& spot, const Spots& spots,
                            const CallState& call, SplitSpace& space) {
    if (threadIdx.x < kInterval) space.most[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        uint32_t most = 0;
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) most = max(most, __float_as_uint(fabsf(v[i].x[j])));
        most = max(most, __shfl_xor_sync(~0u, most, kSpotThreads));  // the warp's other rows
        if (threadIdx.x % 32 < kSpotThreads) {
            atomicMax(&space.most[threadIdx.x % kSpotThreads * 4 + j], most);
        }
    }
    __syncthreads();
    const int64_t k = spot.interval * kInterval + threadIdx.x;
    if (threadIdx.x < kInterval && k < spots.k) {
        atomicMax(&call.column_max[k], space.most[threadIdx.x]);
    }
}

// @find_rows deps: Spots, CallState, spot_facts
// The largest values of a spot's rows, equilibrated, go to those of the whole rows.
OPWELD_FN void find_rows(const Four (&v)[kOwnRows], const SpotAt& spot, const Spots& spots,
                         const CallState& call) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
        const uint32_t most = largest_of_spot(__float_as_uint(largest_of(v[i])));
        const int64_t row = spot.own_row(i);
        if (threadIdx.x % kSpotThreads == 0 && row < spots.rows) {
            atomicMax(&call.row_max[spot.batch * spots.rows + row], most);
        }
    }
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
        if (!is_in_range(largest) || largest >= 4.0f) call.head->needs_fallback = 1;
    }
    return power_of_two(up);
}

// @split_rows_of_b deps: SplitSpace, row_scale, spot_facts, put_parts, equilibrated
// A spot's rows, equilibrated, as parts.
template <int kParts>
OPWELD_FN void split_rows_of_b(const Four (&v)[kOwnRows], const SpotAt& spot, const Spots& spots,
                               const Held& held, const CallState& call, SplitSpace& space) {
    const int64_t begin = spot.batch * spots.rows, first = spot.row + threadIdx.x;
    __syncthreads();  // what stands in shared memory has been read
    if (threadIdx.x < kBand && first < spots.rows) {
        space.up[threadIdx.x] = row_scale(begin + first, spot, held, call);
    }
    __syncthreads();
    bool loses = false;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
        const int64_t row = spot.own_row(i);
        const Four lifted = scaled(v[i], row < spots.rows ? space.up[row - spot.row] : 0.0f);
        loses |= loses_digits<kParts>(lifted);
        if (row >= spots.rows) continue;
        half* packed = held.packed + (begin + row) * spots.intervals * (kParts * kInterval);
        put_parts<kParts>(packed, spot.k, lifted);
    }
    if (loses) call.head->lossy = 1;
}

// @pass_over_b deps: InMemory, equilibrated, find_columns, find_rows, split_rows_of_b, take_spots
// What of b one pass over it is for: the largest of each column; with these that of each row; with
// both the parts. The grid's blocks take spots in turn.
enum class SplitPass { kColumns, kRows, kParts };

template <SplitPass kPass, int kParts, bool kWhole>
OPWELD_FN void pass_over_spot(const Operand& b, const SpotAt& spot, const Spots& spots,
                              const Held& held, const CallState& call, bool packets,
                              SplitSpace& space) {
    Four v[kOwnRows];
    const InMemory<float> source{static_cast<const float*>(b.data)};
    take_spots<kWhole>(v, source, b, spot, spots, packets, space.tile);
    if constexpr (kPass == SplitPass::kColumns) {
        find_columns(v, spot, spots, call, space);
    } else {
        const Four factors = column_factors<kWhole>(call.column_max, spot.k, spots.k, -1);
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) v[i] = equilibrated(v[i], factors);
        if constexpr (kPass == SplitPass::kRows) find_rows(v, spot, spots, call);
        if constexpr (kPass == SplitPass::kParts) {
            split_rows_of_b<kParts>(v, spot, spots, held, call, space);
        }
    }
}

template <SplitPass kPass, int kParts>
OPWELD_FN void pass_over_b(const Operand& b, const Spots& spots, const Held& held,
                           const CallState& call, bool packets, SplitSpace& space) {
    for (int64_t i = blockIdx.x; i < spots.count(); i += gridDim.x) {
        const SpotAt spot(spots, b, i);
        if (packets && spot.is_whole(spots)) {
            pass_over_spot<kPass, kParts, true>(b, spot, spots, held, call, packets, space);
        } else {
            pass_over_spot<kPass, kParts, false>(b, spot, spots, held, call, packets, space);
        }
    }
}

// @pass_over_b_kernel deps: pass_over_b
template <SplitPass kPass, int kParts>
static __global__ void __launch_bounds__(256, 4)
    pass_over_b_kernel(const Operand b, const Spots spots, const Held held, const CallState call,
                       const bool packets) {
    __shared__ SplitSpace space;
    pass_over_b<kPass, kParts>(b, spots, held, call, packets, space);
}

// @refresh_held_kernel deps: is_stale, pass_over_b
// Splits b anew where its copy is stale. A cooperative launch of kSamples blocks at most: all run
// at a time. At the end one of them vouches for the copy. Of a nothing is known yet.
template <int kParts>
static __global__ void __launch_bounds__(256, 3)
    refresh_held_kernel(const Operand b, const Spots spots, const Held held, const CallState call,
                        const bool changed, const bool packets) {
    __shared__ SplitSpace space;
    const auto grid = cooperative_groups::this_grid();
    if (!is_stale(grid, b, spots, held, call, changed)) return;
    if (blockIdx.x == 0 && threadIdx.x == 0) *call.head = {};
    pass_over_b<SplitPass::kColumns, kParts>(b, spots, held, call, packets, space);
    grid.sync();
    pass_over_b<SplitPass::kRows, kParts>(b, spots, held, call, packets, space);
    grid.sync();
    pass_over_b<SplitPass::kParts, kParts>(b, spots, held, call, packets, space);
    grid.sync();
    if (blockIdx.x != 0) return;
    for (int64_t i = threadIdx.x; i < spots.k; i += blockDim.x) {
        held.column_max[i] = call.column_max[i];
    }
    for (int i = threadIdx.x; i < HeldHead::kSamples; i += blockDim.x) {
        held.head->samples[i] = sample_of(b, i, spots);
    }
    if (threadIdx.x == 0) {
        held.head->lossy = call.head->lossy;
        held.head->needs_fallback = call.head->needs_fallback;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) held.head->known = 1;
}

}  // namespace op
