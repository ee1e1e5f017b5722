// The matrix product on Hopper's tensor cores: a persistent, warp-specialised kernel over packed
// operands. One warpgroup copies tiles into a ring of shared memory, two multiply.

namespace op {

// @TileGrid deps:
// The tiles of a problem in the order in which clusters take them: groups of `group` rows of tiles,
// down each group first, so that what is read again is still in the L2 cache.
struct TileGrid {
    int rows, columns, group;  // in tiles of a whole cluster
    int splits, batches;       // parts of k; products
    int intervals;             // of k, each summed on the tensor core before it is promoted

    __host__ __device__ int count() const { return rows * columns * splits * batches; }
};

struct TileAt {
    int row, column, split, batch, first, last;  // intervals first <= i < last

    __device__ __forceinline__ TileAt(const TileGrid& grid, int index) {
        const int area = grid.rows * grid.columns;
        const int outer = index / area, inner = index % area;
        split = outer % grid.splits;
        batch = outer / grid.splits;
        const int above = inner / (grid.group * grid.columns) * grid.group;
        const int height = min(grid.group, grid.rows - above);
        const int rest = inner - above * grid.columns;
        row = above + rest % height;
        column = rest / height;
        first = int(int64_t(grid.intervals) * split / grid.splits);
        last = int(int64_t(grid.intervals) * (split + 1) / grid.splits);
    }
};

// @Chunks deps: half, bfloat16
// What 128 bytes of a packed row hold, by mode: a chunk.
//   Faithful: 32 values as 32 upper parts and 32 lower parts; the sum of two chunks is promoted.
//   the others: 64 values, summed on the tensor core throughout.
template <typename Mode>
struct Chunks {
    using Value = half;
    static constexpr int kDepth = 64, kPerInterval = 1;
    static constexpr bool kSplit = false;
};
template <>
struct Chunks<Faithful> {
    using Value = half;
    static constexpr int kDepth = 32, kPerInterval = 2;
    static constexpr bool kSplit = true;
};
template <>
struct Chunks<Bfloat16> {
    using Value = bfloat16;
    static constexpr int kDepth = 64, kPerInterval = 1;
    static constexpr bool kSplit = false;
};

// @Stages deps: Barrier
// The ring in shared memory. `full` gets the bytes of the copies, `empty` an arrival of each
// warpgroup in each block that this block's tiles come from.
constexpr int kChunkBytes = 128;

template <int kTileM, int kTileN, int kStages>
struct Stages {
    struct Stage {
        alignas(1024) unsigned char a[kTileM * kChunkBytes];
        alignas(1024) unsigned char b[kTileN * kChunkBytes];
    };
    Stage stage[kStages];
    Barrier full[kStages], empty[kStages];
};

// @Cluster deps: cluster
// Blocks of a cluster stand in kHigh rows and kWide columns of tiles. Those of a row share their tile
// of a, those of a column their tile of b: each copies its part of the tile for all of them.
template <int kHigh, int kWide>
struct Cluster {
    static constexpr int kBlocks = kHigh * kWide;
    static constexpr int kPeers = kHigh + kWide - 1;  // blocks that copy into this block's memory
    int row, column;

    __device__ __forceinline__ Cluster() {
        const int rank = kBlocks > 1 ? rank_in_cluster() : 0;
        row = rank / kWide;
        column = rank % kWide;
    }
    __device__ __forceinline__ uint16_t row_mask() const {
        return uint16_t(((1 << kWide) - 1) << (row * kWide));
    }
    __device__ __forceinline__ uint16_t column_mask() const {
        uint16_t mask = 0;
#pragma unroll
        for (int i = 0; i < kHigh; ++i) mask |= 1 << (i * kWide + column);
        return mask;
    }
    // the rank of peer i: first those of this row, then the others of this column
    __device__ __forceinline__ int peer(int i) const {
        if (i < kWide) return row * kWide + i;
        const int other = i - kWide;
        return (other < row ? other : other + 1) * kWide + column;
    }
};

// @Tiles deps: Chunks, Stages, Cluster, TileGrid, Ring
// The sizes of a kernel.
template <typename ModeOf, int kTileNOf, int kHigh, int kWide, int kStagesOf>
struct Tiles {
    using Mode = ModeOf;
    using Blocks = Cluster<kHigh, kWide>;
    static constexpr int kTileM = 128, kTileN = kTileNOf, kStages = kStagesOf;
    static constexpr int kRows = kHigh, kColumns = kWide;
    using Memory = Stages<kTileM, kTileN, kStages>;
    static constexpr int kBytes = sizeof(Memory) + 1024;  // the start is rounded up to 1024
    static constexpr int kThreads = 384;
};

// @fill_stages deps: Tiles, copy_tile
// What the copying warpgroup's one thread does: all chunks of all tiles of this block, in order.
template <typename T>
OPWELD_FN void fill_stages(typename T::Memory& memory, const CUtensorMap* map_a,
                           const CUtensorMap* map_b, const TileGrid& grid, int batched_a,
                           int batched_b) {
    using Depth = Chunks<typename T::Mode>;
    const typename T::Blocks blocks;
    constexpr int kPartA = T::kTileM / T::kColumns, kPartB = T::kTileN / T::kRows;
    Ring<T::kStages> ring;
    ring.parity = 1;  // the ring is empty: the phase before the first counts as ended
    for (int index = cluster_index(); index < grid.count(); index += num_clusters()) {
        const TileAt tile(grid, index);
        const int row = (tile.row * T::kRows + blocks.row) * T::kTileM + blocks.column * kPartA;
        const int column = (tile.column * T::kColumns + blocks.column) * T::kTileN + blocks.row * kPartB;
        const int first = tile.first * Depth::kPerInterval, last = tile.last * Depth::kPerInterval;
        for (int chunk = first; chunk < last; ++chunk) {
            auto& stage = memory.stage[ring.stage];
            const Barrier& full = memory.full[ring.stage];
            memory.empty[ring.stage].wait(ring.parity);
            memory.full[ring.stage].expect(sizeof(stage.a) + sizeof(stage.b));
            copy_tile<(T::kColumns > 1)>(stage.a + blocks.column * kPartA * kChunkBytes, map_a, full,
                                         chunk * 64, row, batched_a ? tile.batch : 0,
                                         blocks.row_mask());
            copy_tile<(T::kRows > 1)>(stage.b + blocks.row * kPartB * kChunkBytes, map_b, full,
                                      chunk * 64, column, batched_b ? tile.batch : 0,
                                      blocks.column_mask());
            ring.advance();
        }
    }
}

// @release_stage deps: Tiles
// This warpgroup has read the stage: said to every block that copies into it.
template <typename T>
OPWELD_FN void release_stage(typename T::Memory& memory, int stage, const typename T::Blocks& blocks) {
    const int thread = threadIdx.x % 128;
    if (thread < T::Blocks::kPeers) memory.empty[stage].arrive_at(blocks.peer(thread));
}

// @Sums deps:
// A warpgroup's part of a tile: 64 rows, kColumns columns, in pieces that one wgmma makes.
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

// @multiply_split deps: wgmma_half_128, wgmma_order, Tiles
// scratch = one interval of a times b^T, of split operands: the small products first. Every product
// is exact; the tensor core cuts the sum after 25 bits, which is why an interval is short.
template <typename T>
OPWELD_FN void multiply_split(float (&scratch)[64], const typename T::Memory& memory,
                              Ring<T::kStages> ring, int group, int piece) {
    const Type<half> type;
    pin(scratch);
    wgmma_fence();
#pragma unroll
    for (int chunk = 0; chunk < Chunks<Faithful>::kPerInterval; ++chunk) {
        const auto& stage = memory.stage[ring.stage];
        // 16 values are 32 bytes, 2 of the descriptor's units; the lower parts are 64 bytes on.
        const uint64_t a = tile_descriptor(stage.a + group * 64 * kChunkBytes);
        const uint64_t b = tile_descriptor(stage.b + piece * 128 * kChunkBytes);
        wgmma(type, scratch, a + 4, b, chunk > 0);
        wgmma(type, scratch, a, b + 4, 1);
        wgmma(type, scratch, a + 6, b + 2, 1);
        wgmma(type, scratch, a + 2, b + 6, 1);
        wgmma(type, scratch, a, b, 1);
        wgmma(type, scratch, a + 2, b + 2, 1);
        ring.advance();
    }
    wgmma_commit();
    pin(scratch);
}

// @promote deps:
// sums += scratch * the scale of its row, rounded to nearest on the float32 units
OPWELD_FN void promote(float (&sums)[64], const float (&scratch)[64], float upper, float lower) {
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
        sums[i] = fmaf(scratch[i], upper, sums[i]);
        sums[i + 1] = fmaf(scratch[i + 1], upper, sums[i + 1]);
        sums[i + 2] = fmaf(scratch[i + 2], lower, sums[i + 2]);
        sums[i + 3] = fmaf(scratch[i + 3], lower, sums[i + 3]);
    }
}

// @sum_split deps: multiply_split, promote, release_stage, Sums
// All intervals of a tile of split operands. `scale` is that of this thread's upper row in the tile's
// first interval, `step` the distance to the next interval's.
template <typename T>
OPWELD_FN void sum_split(Sums<T::kTileN, 128>& sums, typename T::Memory& memory,
                         Ring<T::kStages>& ring, const TileAt& tile, int group, const float* scale,
                         int64_t step) {
    constexpr int kPerInterval = Chunks<Faithful>::kPerInterval;
    const typename T::Blocks blocks;
#pragma unroll 1
    for (int interval = tile.first; interval < tile.last; ++interval) {
        const float upper = __ldg(scale), lower = __ldg(scale + 8);
        scale += step;
        auto next = ring;
#pragma unroll
        for (int chunk = 0; chunk < kPerInterval; ++chunk) {
            memory.full[next.stage].wait(next.parity);
            next.advance();
        }
#pragma unroll
        for (int piece = 0; piece < sums.kPieces; ++piece) {
            float scratch[64];
            multiply_split<T>(scratch, memory, ring, group, piece);
            wgmma_wait<0>();
            pin(scratch);
            if (piece == sums.kPieces - 1) {
                auto read = ring;
#pragma unroll
                for (int chunk = 0; chunk < kPerInterval; ++chunk) {
                    release_stage<T>(memory, read.stage, blocks);
                    read.advance();
                }
            }
            promote(sums.value[piece], scratch, upper, lower);
        }
        ring = next;
    }
}

// @sum_whole deps: wgmma_order, release_stage, Sums
// All intervals of a tile of operands that are not split: the products of one chunk are under way
// while the next one's are issued.
template <typename T, int kPiece>
OPWELD_FN void sum_whole(Sums<T::kTileN, kPiece>& sums, typename T::Memory& memory,
                         Ring<T::kStages>& ring, const TileAt& tile, int group) {
    using Value = typename Chunks<typename T::Mode>::Value;
    const typename T::Blocks blocks;
    auto& value = sums.value[0];
    Ring<T::kStages> before = ring;
#pragma unroll 1
    for (int interval = tile.first; interval < tile.last; ++interval) {
        memory.full[ring.stage].wait(ring.parity);
        const auto& stage = memory.stage[ring.stage];
        const uint64_t a = tile_descriptor(stage.a + group * 64 * kChunkBytes);
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
        if (interval > tile.first) release_stage<T>(memory, before.stage, blocks);
        before = ring;
        ring.advance();
    }
    wgmma_wait<0>();
    pin(value);
    if (tile.last > tile.first) release_stage<T>(memory, before.stage, blocks);
}

// @TileOutput deps:
// Where a tile's values go: to the epilogue, or, where k is split, to this part's sums.
template <typename Epilogue>
struct TileOutput {
    Epilogue epilogue;
    float* parts;
    const float* b_scale;  // [batch][n], null where operands have no scales
    int64_t m, n;
    int b_batched, narrow, pairs;
};

// @put_sums deps: TileOutput, Sums
// Two neighbouring columns of a row at a time: four threads fill 32 bytes.
template <typename Epilogue>
OPWELD_FN void put_pair(const TileOutput<Epilogue>& out, int64_t at, float left, float right,
                        bool whole) {
    if (out.parts) {
        out.parts[at] = left;
        if (whole) out.parts[at + 1] = right;
        return;
    }
    if constexpr (Epilogue::kLanes > 1) {
        if (whole && out.pairs) {
            const float both[2] = {left, right};
            if (out.narrow) {
                out.epilogue.template operator()<2>(uint32_t(at), both);
            } else {
                out.epilogue.template operator()<2>(uint64_t(at), both);
            }
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float one[1] = {i ? right : left};
        if (i && !whole) return;
        if (out.narrow) {
            out.epilogue.template operator()<1>(uint32_t(at + i), one);
        } else {
            out.epilogue.template operator()<1>(uint64_t(at + i), one);
        }
    }
}

template <typename T, typename Epilogue, int kPiece>
OPWELD_FN void put_sums(const Sums<T::kTileN, kPiece>& sums, const TileOutput<Epilogue>& out,
                        const TileGrid& grid, const TileAt& tile, int64_t row, int64_t column) {
    const int64_t part = out.parts ? tile.split * int64_t(grid.batches) + tile.batch : tile.batch;
    const float* scale = out.b_scale ? out.b_scale + (out.b_batched ? tile.batch * out.n : 0) : nullptr;
#pragma unroll
    for (int piece = 0; piece < sums.kPieces; ++piece) {
#pragma unroll
        for (int i = 0; i < kPiece / 2; i += 4) {
            const int64_t at_column = column + piece * kPiece + i * 2;
            if (at_column >= out.n) continue;
            const bool whole = at_column + 1 < out.n;
            const float left = scale ? __ldg(scale + at_column) : 1.0f;
            const float right = scale && whole ? __ldg(scale + at_column + 1) : 1.0f;
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int64_t at_row = row + 8 * j;
                if (at_row >= out.m) continue;
                const int64_t at = (part * out.m + at_row) * out.n + at_column;
                put_pair(out, at, sums.value[piece][i + 2 * j] * left,
                         sums.value[piece][i + 2 * j + 1] * right, whole);
            }
        }
    }
}

// @make_stages deps: Tiles
template <typename T>
OPWELD_FN typename T::Memory& make_stages() {
    extern __shared__ unsigned char opweld_shared[];
    const uint32_t misfit = shared_address(opweld_shared) & 1023;
    auto& memory = *reinterpret_cast<typename T::Memory*>(opweld_shared + (misfit ? 1024 - misfit : 0));
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < T::kStages; ++stage) {
            memory.full[stage].init(1);
            memory.empty[stage].init(2 * T::Blocks::kPeers);
        }
        publish_barriers();
    }
    if constexpr (T::Blocks::kBlocks > 1) {
        sync_cluster();
    } else {
        __syncthreads();
    }
    return memory;
}

// @contract_sm90_kernel deps: make_stages, fill_stages, sum_split, sum_whole, put_sums, set_registers, dependents, prefetch_map
// `a_scale` is [batch][interval][rows_a]. Where *unfit, the operands do not fit their packed form and
// another kernel makes the product.
template <typename T, typename Epilogue>
__global__ void __launch_bounds__(T::kThreads, 1)
    contract_sm90_kernel(const __grid_constant__ CUtensorMap map_a,
                         const __grid_constant__ CUtensorMap map_b, const TileGrid grid,
                         const int batched_a, const float* __restrict__ a_scale, const int64_t rows_a,
                         const TileOutput<Epilogue> out, const int* __restrict__ unfit) {
    constexpr bool kSplit = Chunks<typename T::Mode>::kSplit;
    auto& memory = make_stages<T>();
    const int warpgroup = threadIdx.x / 128;
    wait_for_results();
    const bool fits = !unfit || *unfit == 0;
    if (warpgroup == 0) {
        set_registers<40, false>();
        if (threadIdx.x == 0 && fits) {
            prefetch_map(&map_a);
            prefetch_map(&map_b);
            fill_stages<T>(memory, &map_a, &map_b, grid, batched_a, out.b_batched);
        }
    } else {
        set_registers<232, true>();
        const int group = warpgroup - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const typename T::Blocks blocks;
        Ring<T::kStages> ring;
        for (int index = cluster_index(); fits && index < grid.count(); index += num_clusters()) {
            const TileAt tile(grid, index);
            const int64_t row = int64_t(tile.row * T::kRows + blocks.row) * T::kTileM + group * 64 +
                                warp * 16 + lane / 4;
            const int64_t column =
                int64_t(tile.column * T::kColumns + blocks.column) * T::kTileN + lane % 4 * 2;
            constexpr int kPiece = kSplit ? 128 : T::kTileN;
            Sums<T::kTileN, kPiece> sums;
            sums.clear();
            if constexpr (kSplit) {
                const int64_t batch = batched_a ? tile.batch : 0;
                const float* scale = a_scale + (batch * grid.intervals + tile.first) * rows_a + row;
                sum_split<T>(sums, memory, ring, tile, group, scale, rows_a);
            } else {
                sum_whole<T, kPiece>(sums, memory, ring, tile, group);
            }
            put_sums<T>(sums, out, grid, tile, row, column);
        }
    }
    // A block must not end while another may still copy into its memory or arrive at its barriers.
    if constexpr (T::Blocks::kBlocks > 1) sync_cluster();
}

}  // namespace op
