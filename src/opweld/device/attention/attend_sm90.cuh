// Attention on Hopper's tensor cores: one warpgroup copies images of keys and values into a ring of
// shared memory, the others multiply, each 64 rows. The products of q and the next tile's keys are
// under way while those of powers and values are added up.

namespace op {

// @PartsChunks deps: parts_place
// Where parts of values lie for wgmma: chunks of 32 values of kRows rows, one after the other, 128
// swizzled bytes of each row.
template <int kRows>
struct PartsChunks {
    static constexpr int kBytes = kRows * 128;

    static __device__ __forceinline__ int at(int row, int place, bool lower) {
        const int chunk = (lower ? 4 : 0) + place % 32 / 8;
        return place / 32 * kBytes + parts_place<32>(row, chunk) + place % 8 * 2;
    }
};

// @AttendTileSm90 deps: AttendLines, Barrier, PartsChunks, tile_memory
// Warpgroups make kRows rows of the result, 64 each, and take 64 keys at a time: no more terms than
// that are summed before a sum is promoted. kStages images are in shared memory at once.
template <typename ProblemOf>
struct AttendTileSm90 {
    using Problem = ProblemOf;
    static constexpr int kDepth = (Problem::kDepth + 31) / 32 * 32;
    static constexpr int kColumns = (Problem::kColumns + 63) / 64 * 64;
    static constexpr int kWide = kDepth > kColumns ? kDepth : kColumns;
    static_assert(kWide <= 128, "there are no registers for more");
    static constexpr int kGroups = 2, kDown = 1, kRows = 64 * kGroups, kKeys = 64;
    static constexpr int kThreads = 128 * kGroups, kBlockThreads = kThreads + 128;
    static constexpr int kSplitThreads = 256, kSplitBlocks = 3;  // at once: 2 are 4 % slower (H200)
    static constexpr int kStages = kWide <= 64 ? 4 : 2;
    using Queries = PartsChunks<kRows>;
    using Keys = PartsChunks<kKeys>;
    using Values = PartsChunks<kColumns>;
    static constexpr int kKeyBytes = kKeys * (kDepth + 1) * 4;
    static constexpr int kValueBytes = kColumns * (kKeys + 1) * 4;
    static constexpr int kImageBytes = kKeyBytes + kValueBytes;
    static constexpr int kPitch = kColumns + 8;  // floats of a result row

    struct Stage {
        alignas(1024) unsigned char keys[kKeys * kDepth * 4];
        float key_scales[kKeys];
        alignas(1024) unsigned char values[kKeys * kColumns * 4];
        float column_scales[kColumns];
    };
    struct Memory {
        union {
            Stage stage[kStages];
            float result[kRows * kPitch];
        };
        alignas(1024) unsigned char queries[kRows * kDepth * 4];
        float query_scales[kRows];
        float largest_scales[kGroups][kColumns];
        bool again[kRows];
        Barrier keys[kStages], values[kStages], no_keys[kStages], no_values[kStages];
    };
    static constexpr int kBytes = kTileMemoryBytes<Memory>;

    static __host__ __device__ int64_t tiles(int64_t keys) { return (keys + kKeys - 1) / kKeys; }
};

// @QueriesSm90 deps:
// A warpgroup's rows in two parts as operands a, steps of 16 k: in registers or where they lie.
template <typename Tile, bool kHolds>
struct QueriesSm90;

// @QueriesInRegisters_sm90 deps: QueriesSm90, load_matrices, parts_place, shared_address, wgmma_half_64
template <typename Tile>
struct QueriesSm90<Tile, true> {
    uint32_t parts[2][Tile::kDepth / 16][4];

    __device__ __forceinline__ QueriesSm90(const unsigned char* queries) {
        const int lane = int(threadIdx.x) % 32, row = int(threadIdx.x) / 32 * 16 + lane % 16;
        const uint32_t at = shared_address(queries);
#pragma unroll
        for (int step = 0; step < Tile::kDepth / 16; ++step)
#pragma unroll
            for (int low = 0; low < 2; ++low)
                load_matrices(parts[low][step],
                              at + step / 2 * Tile::Queries::kBytes +
                                  parts_place<32>(row, low * 4 + step % 2 * 2 + lane / 16));
    }
    __device__ __forceinline__ void multiply(float (&sums)[32], int step, int low, uint64_t b,
                                             int add) const {
        wgmma(sums, parts[low][step], b, add);
    }
};

// @QueriesInMemory_sm90 deps: QueriesSm90, tile_descriptor, wgmma_half_64_shared
template <typename Tile>
struct QueriesSm90<Tile, false> {
    uint64_t at;

    __device__ __forceinline__ QueriesSm90(const unsigned char* queries)
        : at(tile_descriptor(queries + int(threadIdx.x) / 128 * 64 * 128)) {}
    __device__ __forceinline__ void multiply(float (&sums)[32], int step, int low, uint64_t b,
                                             int add) const {
        // in units of 16 bytes
        wgmma(sums, at + step / 2 * (Tile::Queries::kBytes / 16) + step % 2 * 2 + low * 4, b, add);
    }
};

// @PowersSm90 deps: AttendPowers, wgmma_half_64
// Powers of 16 rows a warp as operands a.
template <int kSteps>
struct PowersSm90 : AttendPowers<1, kSteps> {
    __device__ __forceinline__ void multiply(float (&sums)[32], int step, int low, uint64_t b,
                                             int add) const {
        if (low) {
            wgmma(sums, this->lower[0][step], b, add);
        } else {
            wgmma(sums, this->upper[0][step], b, add);
        }
    }
};

// @multiply_chunks deps: wgmma_order
// sums = a times 64 rows of b, over kChunks of 32 values of k from chunk `first` on, without lower
// by lower parts: the small products come first, as in contract_sm90_sum.cuh. `b` is the descriptor
// of those rows in chunk 0, chunks lie kPitch bytes apart.
template <int kChunks, int kPitch, typename A>
OPWELD_FN void multiply_chunks(float (&sums)[32], const A& a, uint64_t b, int first) {
    wgmma_fence();
#pragma unroll
    for (int step = 2 * first; step < 2 * (first + kChunks); ++step) {
        const uint64_t at = b + step / 2 * (kPitch / 16) + step % 2 * 2;
        a.multiply(sums, step, 1, at, step > 2 * first);
        a.multiply(sums, step, 0, at + 4, 1);
    }
#pragma unroll
    for (int step = 2 * first; step < 2 * (first + kChunks); ++step) {
        a.multiply(sums, step, 0, b + step / 2 * (kPitch / 16) + step % 2 * 2, 1);
    }
    wgmma_commit();
}

// @ScoresSm90 deps: QueriesSm90, multiply_chunks
// The products of a warpgroup's rows and a tile of keys, in two sums of up to 64 values of k, which
// are under way between `start` and `take`.
template <typename Tile>
struct ScoresSm90 {
    static constexpr int kChunks = Tile::kDepth / 32, kFirst = (kChunks + 1) / 2;
    static constexpr int kParts = kChunks > 1 ? 2 : 1;
    float part[kParts][32];

    template <int kPart, typename Queries>
    __device__ __forceinline__ void start(const Queries& queries, uint64_t keys) {
        pin(part[kPart]);
        multiply_chunks<kPart ? kChunks - kFirst : kFirst, Tile::Keys::kBytes>(
            part[kPart], queries, keys, kPart * kFirst);
    }
    __device__ __forceinline__ void take(float (&products)[1][8][4]) {
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < kParts; ++i) pin(part[i]);
#pragma unroll
        for (int i = 0; i < 32; ++i)
            products[0][i / 4][i % 4] = kParts == 2 ? part[0][i] + part[kParts - 1][i] : part[0][i];
    }
};

// @fill_images deps: AttendBlock, Ring, copy_bulk
// What the copying warpgroup's one thread does: all tiles of the block, in order.
template <typename Tile>
OPWELD_FN void fill_images(const AttendBlock<Tile>& block, typename Tile::Memory& memory) {
    Ring<Tile::kStages> ring;
    const unsigned char* image = block.images;
    const int tiles = block.tiles();
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, ring.advance(), image += Tile::kImageBytes) {
        auto& stage = memory.stage[ring.stage];
        // The ring is empty: the phase before the first counts as ended.
        memory.no_keys[ring.stage].wait(ring.parity ^ 1);
        memory.keys[ring.stage].expect(Tile::kKeyBytes);
        copy_bulk(stage.keys, image, Tile::kKeyBytes, memory.keys[ring.stage]);
        memory.no_values[ring.stage].wait(ring.parity ^ 1);
        memory.values[ring.stage].expect(Tile::kValueBytes);
        copy_bulk(stage.values, image + Tile::kKeyBytes, Tile::kValueBytes,
                  memory.values[ring.stage]);
    }
}

// @Turns deps: sync_threads
// Two warpgroups take turns on the tensor cores, `count` each: while one multiplies, the other
// makes powers. That is worth 8 to 19 % from 2048 keys on (H200). What the second has to do after
// the first one's last turn it does without waiting. The barriers of a block:
constexpr int kAllRows = 1, kTurnOfFirst = 2;

struct Turns {
    int group, count;

    __device__ __forceinline__ void begin() const {
        if (group == 1 && count > 0) arrive_at_threads<256>(kTurnOfFirst);
    }
    __device__ __forceinline__ void wait(int turn) const {
        if (turn < count) sync_threads<256>(kTurnOfFirst + group);
    }
    __device__ __forceinline__ void end(int turn) const {
        if (turn + group < count) arrive_at_threads<256>(kTurnOfFirst + 1 - group);
    }
};

// @AttendGroupSm90 deps: AttendBlock, AttendTileSm90, LargestScales, PowersSm90, Ring, ScoresSm90, attend_powers, attend_rows_cancellation, fence_proxy, Turns, tile_descriptor
// A warpgroup's rows.
template <typename Problem>
struct AttendGroupSm90 {
    using Tile = AttendTileSm90<Problem>;
    static constexpr int kAcross = Tile::kColumns / 8, kPieces = Tile::kColumns / 64;
    const AttendBlock<Tile>& block;
    typename Tile::Memory& memory;
    const float* scales;  // of this lane's rows
    QueriesSm90<Tile, Problem::kHolds> queries;
    ScoresSm90<Tile> products;
    AttendRows<1> rows;
    float sums[1][kAcross][4];
    LargestScales<Tile::kColumns, 128> largest;
    Ring<Tile::kStages> ring;
    Turns turns;

    __device__ __forceinline__ AttendGroupSm90(const AttendBlock<Tile>& of,
                                               typename Tile::Memory& shared)
        : block(of),
          memory(shared),
          scales(shared.query_scales + of.warp_row() + int(threadIdx.x) % 32 / 4),
          queries(shared.queries) {
        block.begin(rows, sums, scales);
    }

    // A number that all lanes share: so the compiler learns that, and has registers of its own for
    // it.
    static __device__ __forceinline__ int of_warp(int number) {
        return int(__reduce_max_sync(~0u, unsigned(number)));
    }

    // Rows times keys and values, into the result. Rows of which digits are missing are to be made
    // again.
    __device__ __forceinline__ void make() {
        const int group = of_warp(int(threadIdx.x) / 128);
        // The first group's rows may see a tile less: nobody waits until it has used the last one.
        const int tiles = of_warp(block.tiles(64 * (group + 1)));
        turns = {group, of_warp(block.tiles(64))};
        turns.begin();
        if (tiles > 0) {
            memory.keys[0].wait(0);
            const uint64_t keys = tile_descriptor(memory.stage[0].keys);
            products.template start<0>(queries, keys);
            if constexpr (products.kParts == 2) products.template start<1>(queries, keys);
#pragma unroll 1
            for (int tile = 0; tile < tiles - 1; ++tile) add_tile<true>(tile);
            add_tile<false>(tiles - 1);
        }
        largest.put(memory.largest_scales[group]);
        sync_threads<Tile::kThreads>(kAllRows);  // the stages become the result's
        const bool cancelled = are_cancelled<Tile>(sums, memory.largest_scales[group]);
        block.divide_and_lay_out(sums, rows, cancelled, memory.result);
    }

    // Of a tile whose keys have been multiplied, or are. kMore: there is a next one.
    template <bool kMore>
    __device__ __forceinline__ void add_tile(int tile) {
        const auto now = ring;
        ring.advance();
        const auto& stage = memory.stage[now.stage];
        PowersSm90<Tile::kKeys / 16> powers;
        {
            float scores[1][8][4], kept[1][2];
            products.take(scores);
            block.turn_into_scores(scores, tile, scales, stage.key_scales);
            attend_powers(powers, kept, rows, scores);
            block.multiply(sums, kept);
        }
        memory.values[now.stage].wait(now.parity);
        largest.take(stage.column_scales);
        float2 column_scales[8];
        load_scales(column_scales, stage.column_scales);
        memory.no_keys[now.stage].arrive();
        turns.wait(tile);
        add_piece<kMore, 0>(powers, stage, column_scales, tile);
        if constexpr (kPieces == 2) {
            load_scales(column_scales, stage.column_scales + 64);
            add_piece<kMore, 1>(powers, stage, column_scales, tile);
        }
        memory.no_values[now.stage].arrive();
    }

    // The scales of this lane's columns among 64, two neighbours of every eight. An arrival orders
    // what was loaded before what other threads do, but not before the bulk copy that writes the
    // stage next, which goes by another proxy: hence the fence, for these loads and those of the
    // keys' scales.
    static __device__ __forceinline__ void load_scales(float2 (&scales)[8], const float* from) {
#pragma unroll
        for (int n = 0; n < 8; ++n)
            scales[n] = *reinterpret_cast<const float2*>(from + 8 * n + int(threadIdx.x) % 4 * 2);
        fence_proxy();
    }

    // Powers times 64 columns of values, and then a part of the next scores, which is under way
    // when this returns.
    template <bool kMore, int kPiece, typename Powers>
    __device__ __forceinline__ void add_piece(const Powers& powers,
                                              const typename Tile::Stage& stage,
                                              const float2 (&column_scales)[8], int tile) {
        constexpr bool kStarts = kMore && kPiece < products.kParts;
        constexpr bool kStartsRest = kMore && kPieces == 1 && products.kParts == 2;
        float own[32];
        pin(own);
        multiply_chunks<2, Tile::Values::kBytes>(
            own, powers, tile_descriptor(stage.values + kPiece * 64 * 128), 0);
        if constexpr (kStarts) {
            const uint64_t keys = tile_descriptor(memory.stage[ring.stage].keys);
            if (kPiece == 0) memory.keys[ring.stage].wait(ring.parity);
            products.template start<kPiece>(queries, keys);
            if constexpr (kStartsRest) products.template start<1>(queries, keys);
        }
        if constexpr (kPiece == kPieces - 1) turns.end(tile);
        wgmma_wait<int(kStarts) + int(kStartsRest)>();
        pin(own);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const float2 scale = column_scales[n];
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                float& all = sums[0][kPiece * 8 + n][v];
                all = fmaf(own[4 * n + v], v % 2 ? scale.y : scale.x, all);
            }
        }
    }
};

// @attend_sm90 deps: AttendGroupSm90, attend_bytes, block_of, dependents, fence_proxy, fill_images, launch_attend, setmaxnreg
template <typename Tile>
OPWELD_FN typename Tile::Memory& make_attend_memory() {
    auto& memory = tile_memory<typename Tile::Memory>();
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < Tile::kStages; ++stage) {
            memory.keys[stage].init(1);
            memory.values[stage].init(1);
            // Each thread for itself: racecheck doubts what one of a warp says for all.
            memory.no_keys[stage].init(Tile::kThreads);
            memory.no_values[stage].init(Tile::kThreads);
        }
    }
    return memory;
}

template <typename Problem, typename Epilogue>
__global__ void __launch_bounds__(AttendTileSm90<Problem>::kBlockThreads, 1)
    attend_sm90_kernel(const Problem problem, const AttendSizes sizes, const unsigned char* images,
                       const int* needs_fallback, const EpilogueStore<Epilogue> sink) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Tile = AttendTileSm90<Problem>;
    auto& memory = make_attend_memory<Tile>();
    const auto block = block_of<Tile>(problem, sizes, images, needs_fallback, memory.again);
    const bool multiplies = threadIdx.x < Tile::kThreads;
    int own = 0;
    if (multiplies) own = block.split_queries(memory.queries, memory.query_scales);
    griddepcontrol_wait();  // of what splits keys and values
    own |= block.find_fallbacks();
    fence_proxy();
    const bool fits = !__syncthreads_or(own);
    if (!multiplies) {
        setmaxnreg<24, false>();
        if (threadIdx.x == Tile::kThreads && fits) fill_images<Tile>(block, memory);
    } else {
        setmaxnreg<240, true>();
        if (fits) {
            AttendGroupSm90<Problem>(block, memory).make();
        } else {
            block.leave();
        }
        sync_threads<Tile::kThreads>(kAllRows);
        block.make_again(memory.result);
        sync_threads<Tile::kThreads>(kAllRows);
        block.give(sink, memory.result);
    }
#endif
}

template <typename Problem, typename Epilogue>
static int attend_sm90(const Problem& problem, const AttendSizes& sizes, void* workspace,
                       const Epilogue& epilogue, bool narrow, bool aligned, void* stream) {
    return launch_attend<AttendTileSm90<Problem>>(attend_sm90_kernel<Problem, Epilogue>, problem,
                                                  sizes, workspace, epilogue, narrow, aligned,
                                                  stream);
}

}  // namespace op
