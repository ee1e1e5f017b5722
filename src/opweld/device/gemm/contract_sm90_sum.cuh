// Products on Hopper's tensor cores: how two warpgroups sum what the loader brings.

namespace op {

// @consumer_release deps: Tiles
// This warpgroup has read the stage: said to every block that copies into it.
template <typename T>
OPWELD_FN void consumer_release(typename T::Memory& memory, int stage,
                                const typename T::Blocks& blocks) {
    const int thread = threadIdx.x % 128;
    if (thread < T::kBlocks) memory.empty[stage].arrive_at(blocks.peer(thread));
}

// @Sums deps:
// A warpgroup's part of a tile: 64 rows, kTileN columns, in pieces of kPiece columns that one wgmma
// makes.
template <int kTileN, int kPiece>
struct Sums {
    static constexpr int kPieces = kTileN / kPiece;
    float value[kPieces][kPiece / 2];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < kPieces; ++i)
#pragma unroll
            for (int j = 0; j < kPiece / 2; ++j) value[i][j] = 0.0f;
    }
};

// @multiply_split deps: wgmma_half_128, wgmma_order, tile_descriptor
// scratch += 16 kSteps values of k of a chunk of a times b^T, from its step `first` on, of operands
// in kParts: the small products first. Every product is exact, but the tensor core cuts a sum after
// 25 bits.
template <int kParts, int kSteps, int kChunkBytes = 128, int kCount>
OPWELD_FN void multiply_split(float (&scratch)[kCount], const unsigned char* a_rows,
                              const unsigned char* b_rows, int first, int add) {
    const Type<half> type;
    // 16 values are 32 bytes, 2 of the descriptor's units; the lower parts are 64 bytes on.
    const uint64_t a = tile_descriptor<kChunkBytes>(a_rows) + 2 * first;
    const uint64_t b = tile_descriptor<kChunkBytes>(b_rows) + 2 * first;
    if constexpr (kParts == 2) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            wgmma(type, scratch, a + 4 + 2 * step, b + 2 * step, step > 0 || add);
            wgmma(type, scratch, a + 2 * step, b + 4 + 2 * step, 1);
        }
        add = 1;
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        wgmma(type, scratch, a + 2 * step, b + 2 * step, step > 0 || add);
    }
    wgmma_commit();
}

// @promote deps:
// sums += scratch * the scale of its row, rounded to nearest on the float32 units
template <int kCount>
OPWELD_FN void promote(float (&sums)[kCount], const float (&scratch)[kCount], float upper,
                       float lower) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
        sums[i] = fmaf(scratch[i], upper, sums[i]);
        sums[i + 1] = fmaf(scratch[i + 1], upper, sums[i + 1]);
        sums[i + 2] = fmaf(scratch[i + 2], lower, sums[i + 2]);
        sums[i + 3] = fmaf(scratch[i + 3], lower, sums[i + 3]);
    }
}

// @sum_promoted deps: multiply_split, promote, consumer_release, Sums
// One or more chunks of split operands, or a part of one, for all pieces of a warpgroup's tile.
// Leaves `ring` behind the chunks that were read to their end. `meanwhile` is done as the first
// products are under way.
template <typename T, int kPiece, typename Meanwhile>
OPWELD_FN void sum_promoted(Sums<T::kTileN, kPiece>& sums, typename T::Memory& memory,
                            Ring<T::kStages>& ring, int group, int first, const float& upper,
                            const float& lower, const Meanwhile& meanwhile) {
    constexpr int kDepth = T::Depth::kDepth;
    constexpr int kChunks = T::kPromoted < kDepth ? 1 : T::kPromoted / kDepth;
    constexpr int kSteps = (T::kPromoted < kDepth ? T::kPromoted : kDepth) / 16;
    const bool to_end = first + kSteps == kDepth / 16;
    const typename T::Blocks blocks;
    auto next = ring;
#pragma unroll
    for (int piece = 0; piece < sums.kPieces; ++piece) {
        const bool release = to_end && piece == sums.kPieces - 1;
        float scratch[kPiece / 2];
        auto now = ring, before = ring;
        pin(scratch);
        wgmma_fence();
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            if (piece == 0 && first == 0) memory.full[now.stage].wait(now.parity);
            const auto& stage = memory.stage[now.stage];
            multiply_split<T::Mode::kParts, kSteps, T::kChunkBytes>(
                scratch, stage.a + group * 64 * T::kChunkBytes,
                stage.b + piece * kPiece * T::kChunkBytes, first, chunk > 0);
            if (release && chunk > 0) {
                wgmma_wait<1>();
                consumer_release<T>(memory, before.stage, blocks);
            }
            before = now;
            now.advance();
        }
        if (piece == 0) meanwhile();
        wgmma_wait<0>();
        pin(scratch);
        if (release) consumer_release<T>(memory, before.stage, blocks);
        promote(sums.value[piece], scratch, upper, lower);
        next = now;
    }
    if (to_end) ring = next;
}

// @sum_split deps: sum_promoted
// All intervals of a tile of split operands; `rows` gives the scales of this thread's two rows in
// one interval after the other.
template <typename T, int kPiece, typename RowScales>
OPWELD_FN void sum_split(Sums<T::kTileN, kPiece>& sums, typename T::Memory& memory,
                         Ring<T::kStages>& ring, const TileAt& tile, int group, RowScales& rows) {
    constexpr int kSteps = T::kPromoted / 16, kStepsOfChunk = T::Depth::kDepth / 16;
    float upper, lower, next_upper = 0.0f, next_lower = 0.0f;
    if (tile.first < tile.last) rows.next(next_upper, next_lower);
#pragma unroll 1
    for (int interval = tile.first; interval < tile.last; ++interval) {
#pragma unroll
        for (int part = 0; part < T::kWidth / T::kPromoted; ++part) {
            const auto meanwhile = [&] {
                if (part > 0) return;
                upper = next_upper, lower = next_lower;
                rows.use(upper, lower);
                if (interval + 1 < tile.last) rows.next(next_upper, next_lower);
            };
            sum_promoted<T, kPiece>(sums, memory, ring, group, part * kSteps % kStepsOfChunk, upper,
                                    lower, meanwhile);
        }
    }
}

// @sum_ahead deps: multiply_split, promote, consumer_release, Sums
// All intervals of a tile of split operands, where an interval is one chunk and a tile one piece:
// the products of the next interval are under way while the sums of one are promoted.
template <typename T, int kPiece, typename RowScales>
OPWELD_FN void sum_ahead(Sums<T::kTileN, kPiece>& sums, typename T::Memory& memory,
                         Ring<T::kStages>& ring, const TileAt& tile, int group, RowScales& rows) {
    static_assert(kPiece == T::kTileN && T::Mode::kParts == 1 && T::kPromoted == T::kWidth);
    const typename T::Blocks blocks;
    struct Part {
        float sums[kPiece / 2], upper, lower;
    } even, odd;  // intervals
    auto before = ring;
    const auto start = [&](Part& part) {
        memory.full[ring.stage].wait(ring.parity);
        const auto& stage = memory.stage[ring.stage];
        pin(part.sums);
        wgmma_fence();
        multiply_split<1, T::kWidth / 16, T::kChunkBytes>(
            part.sums, stage.a + group * 64 * T::kChunkBytes, stage.b, 0, 0);
        ring.advance();
        rows.next(part.upper, part.lower);
    };
    const auto end = [&](Part& part) {
        rows.use(part.upper, part.lower);
        pin(part.sums);
        consumer_release<T>(memory, before.stage, blocks);
        before.advance();
        promote(sums.value[0], part.sums, part.upper, part.lower);
    };
    if (tile.first == tile.last) return;
    start(even);
    int left = tile.last - tile.first - 1;
#pragma unroll 1
    for (; left >= 2; left -= 2) {
        start(odd);
        wgmma_wait<1>();
        end(even);
        start(even);
        wgmma_wait<1>();
        end(odd);
    }
    if (left == 1) {
        start(odd);
        wgmma_wait<1>();
        end(even);
        wgmma_wait<0>();
        end(odd);
    } else {
        wgmma_wait<0>();
        end(even);
    }
}

// @sum_whole deps: Type, wgmma_order, tile_descriptor, consumer_release, Sums
// All intervals of a tile of operands that are not split: the products of one chunk are under way
// while the next one's are issued.
template <typename T, int kPiece>
OPWELD_FN void sum_whole(Sums<T::kTileN, kPiece>& sums, typename T::Memory& memory,
                         Ring<T::kStages>& ring, const TileAt& tile, int group) {
    using Value = typename T::Mode::Storage;
    const typename T::Blocks blocks;
    auto& value = sums.value[0];
    Ring<T::kStages> before = ring;
#pragma unroll 1
    for (int interval = tile.first; interval < tile.last; ++interval) {
        memory.full[ring.stage].wait(ring.parity);
        const auto& stage = memory.stage[ring.stage];
        const uint64_t a = tile_descriptor(stage.a + group * 64 * T::kChunkBytes);
        const uint64_t b = tile_descriptor(stage.b);
        pin(value);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            wgmma(Type<Value>(), value, a + 2 * step, b + 2 * step, 1);
        }
        wgmma_commit();
        wgmma_wait<1>();
        pin(value);
        if (interval > tile.first) consumer_release<T>(memory, before.stage, blocks);
        before = ring;
        ring.advance();
    }
    wgmma_wait<0>();
    pin(value);
    if (tile.last > tile.first) consumer_release<T>(memory, before.stage, blocks);
}

// @own_thread deps:
// The thread's number, found anew: what follows from it takes no registers before.
OPWELD_FN int own_thread() {
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    return thread;
}

// @start_factors deps: Staging, copy_async_word, shared_address
// Starts copies of the scales of a tile's columns, of which `columns` exist: they are under way
// during the sums.
template <int kTileN>
OPWELD_FN void start_factors(Staging::OfWarp& space, const float* scale, int columns) {
    __syncwarp();  // those of the tile before have been read
    const int lane = threadIdx.x % 32;
    const auto to = shared_address(space.factor + lane);
    scale += lane;
#pragma unroll
    for (int i = 0; i < kTileN; i += 32) {
        copy_async_word(to + i * 4, scale + i, i + lane < columns ? 4 : 0);
    }
    commit_copies();
}

// @find_cancellation_sm90 deps: Drowned, largest_scale, Sums
// Looks among a warp's sums, before the scales of their columns, for cancelled ones. `scale`: of
// this thread's upper row in the first of these intervals; `rows`: how many of the rows from it on
// exist.
template <int kParts, int kTileN, int kPiece>
OPWELD_FN void find_cancellation(const Sums<kTileN, kPiece>& sums, const float* scale, int64_t step,
                                 int intervals, int64_t rows, CallHead* call) {
    const float upper = largest_scale(scale, step, rows > 0 ? intervals : 0);
    const float lower = largest_scale(scale + 8, step, rows > 8 ? intervals : 0);
    Drowned<kParts> cancelled;
#pragma unroll
    for (int piece = 0; piece < sums.kPieces; ++piece) {
#pragma unroll
        for (int i = 0; i < kPiece / 2; ++i) {
            cancelled.add(sums.value[piece][i], i / 2 % 2 ? lower : upper);
        }
    }
    cancelled.tell(call);
}

// @TileSums deps: Sums, TileScales, TileGrid
// How the sums of a tile are made: `sum` for one, whose sums begin as zeros.
template <typename Mode, bool kScaled = Mode::kScaled>
struct TileSums;

// @SplitSums deps: TileSums, start_factors, sum_ahead, sum_split, copy_groups
template <typename Mode>
struct TileSums<Mode, true> {
    template <typename T>
    static constexpr int kPiece = T::kTileN < 128 ? T::kTileN : 128;

    template <typename T, typename Loader, typename Staging, typename FirstRow>
    __device__ __forceinline__ static void sum(Sums<T::kTileN, kPiece<T>>& sums,
                                               typename T::Memory& memory, Ring<T::kStages>& ring,
                                               const TileGrid& grid, const TileAt& tile, int group,
                                               const Loader& loader, const TileScales& scales,
                                               int64_t column, int64_t m, int64_t n,
                                               const Staging& staging, const FirstRow& first_row) {
        const int lane = threadIdx.x % 32;
        const int64_t of_batch = scales.b_batched ? tile.batch * n : 0;
        start_factors<T::kTileN>(staging(), scales.b + of_batch + column, int(n - column));
        auto rows = loader.row_scales(grid, scales, tile, first_row(tile) + lane / 4, m);
        if constexpr (T::kAhead) {
            sum_ahead<T, kPiece<T>>(sums, memory, ring, tile, group, rows);
        } else {
            sum_split<T, kPiece<T>>(sums, memory, ring, tile, group, rows);
        }
        await_copies<0>();
        if constexpr (Loader::kHasFallback) {
            if (rows.template needs_fallback<Mode::kParts>(sums, staging())) {
                loader.sum_in_float32(sums, tile, first_row(tile), column, m);
            }
        } else {
            rows.template check<Mode::kParts>(sums, scales, tile, m - first_row(tile) - lane / 4);
        }
    }
};

// @WholeSums deps: TileSums, sum_whole
template <typename Mode>
struct TileSums<Mode, false> {
    template <typename T>
    static constexpr int kPiece = T::kTileN;

    template <typename T, typename Loader, typename Staging, typename FirstRow>
    __device__ __forceinline__ static void sum(Sums<T::kTileN, T::kTileN>& sums,
                                               typename T::Memory& memory, Ring<T::kStages>& ring,
                                               const TileGrid&, const TileAt& tile, int group,
                                               const Loader&, const TileScales&, int64_t, int64_t,
                                               int64_t, const Staging&, const FirstRow&) {
        sum_whole<T, T::kTileN>(sums, memory, ring, tile, group);
    }
};

}  // namespace op
