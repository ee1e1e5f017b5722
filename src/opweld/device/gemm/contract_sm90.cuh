// The matrix product on Hopper's tensor cores: a persistent, warp-specialised kernel over packed
// operands. One warpgroup copies tiles into a ring of shared memory, two multiply.

namespace op {

// @TileGrid deps:
// The tiles of a problem in the order in which clusters take them: groups of kGroup rows of tiles,
// down each group first, so that what is read again is still in the L2 cache.
struct TileGrid {
    static constexpr int kGroup = 4;
    int rows, columns;    // in tiles of a whole cluster
    int splits, batches;  // parts of k; products
    int intervals;        // of 64 values of k; a part of k is a whole number of them
    uint32_t reciprocal;  // of the tiles of a group, in units of 2^-32, rounded up

    static TileGrid of(int rows, int columns, int splits, int batches, int intervals) {
        const uint64_t of_group = uint64_t(kGroup) * columns;
        return {rows, columns, splits, batches, intervals, uint32_t((1ull << 32) / of_group + 1)};
    }
    __host__ __device__ int count() const { return rows * columns * splits * batches; }
};

// Where tile `index` is. A division takes as long as a small tile's sums: there is none where one
// product is made in one part.
struct TileAt {
    int row, column, split, batch, first, last;  // intervals first <= i < last

    __device__ __forceinline__ TileAt(const TileGrid& grid, int index) {
        const int area = grid.rows * grid.columns, outer = index < area ? 0 : index / area;
        const int inner = index - outer * area, of_group = TileGrid::kGroup * grid.columns;
        int group = int(__umulhi(uint32_t(inner), grid.reciprocal));  // or one more
        if (group * of_group > inner) --group;
        const int above = group * TileGrid::kGroup, rest = inner - group * of_group;
        const int height = min(TileGrid::kGroup, grid.rows - above);
        column = height == 3 ? int(__umulhi(uint32_t(rest), 0xAAAAAAABu) / 2) : rest >> height / 2;
        row = above + rest - column * height;
        split = 0, batch = outer, first = 0, last = grid.intervals;
        if (grid.splits == 1) return;
        split = outer % grid.splits;
        batch = outer / grid.splits;
        first = int(int64_t(grid.intervals) * split / grid.splits);
        last = int(int64_t(grid.intervals) * (split + 1) / grid.splits);
    }
};

// @Chunks deps: kInterval
// What 128 bytes of a packed row hold, by mode: a chunk.
//   Faithful: 32 values as 32 upper parts and 32 lower parts.
//   the others: 64 values.
template <typename Mode>
struct Chunks {
    static constexpr int kDepth = kInterval / Mode::kParts, kPerInterval = Mode::kParts;
};

// @Stages deps: Barrier, Staging
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
    Staging staging;
    Barrier full[kStages], empty[kStages];
};

// @Cluster deps: cluster
// Blocks of a cluster stand one below the other and share their tile of b: each copies its part of it
// for all of them.
template <int kBlocksOf>
struct Cluster {
    static constexpr int kBlocks = kBlocksOf;
    static constexpr uint16_t kAll = (1 << kBlocks) - 1;
    int rank;

    __device__ __forceinline__ Cluster() : rank(kBlocks > 1 ? rank_in_cluster() : 0) {}
    // the rank of block i, this one first
    __device__ __forceinline__ int peer(int i) const {
        return i + (i == 0 ? rank : i <= rank ? -1 : 0);
    }
};

// @Tiles deps: Chunks, Stages, Cluster, TileGrid, Ring, tile_memory
// The sizes of a kernel. `kPromotedOf`: how many values of k the tensor cores sum before a sum of
// split operands is promoted; fewer are more exact and slower.
template <typename ModeOf, int kTileNOf, int kBlocksOf, int kStagesOf, int kPromotedOf>
struct Tiles {
    using Mode = ModeOf;
    using Blocks = Cluster<kBlocksOf>;
    static constexpr int kTileM = 128, kTileN = kTileNOf, kBlocks = kBlocksOf;
    static constexpr int kStages = kStagesOf, kPromoted = kPromotedOf;
    using Memory = Stages<kTileM, kTileN, kStages>;
    static constexpr int kBytes = kTileMemoryBytes<Memory>;
    static constexpr int kThreads = 384;
};

// @TileScales deps: CallState
// Scales of split operands, a [batch][interval][a_rows] and b [batch][n], and what is known of the
// operands: where they are needs_fallback, or lost digits count, another kernel makes the product. Whole
// operands have none.
struct TileScales {
    const float *a, *b;
    int64_t a_rows;
    int a_batched, b_batched;
    CallHead* call;
};

// @fill_stages deps: Tiles, TileScales, cluster, copy_tile
// What the copying warpgroup's one thread does: all chunks of all tiles of this block, in order.
template <typename T>
OPWELD_FN void fill_stages(typename T::Memory& memory, const CUtensorMap* map_a,
                           const CUtensorMap* map_b, const TileGrid& grid, const TileScales& scales) {
    using Depth = Chunks<typename T::Mode>;
    const typename T::Blocks blocks;
    constexpr int kPart = T::kTileN / T::kBlocks;
    Ring<T::kStages> ring;
    ring.parity = 1;  // the ring is empty: the phase before the first counts as ended
    for (int index = cluster_index(); index < grid.count(); index += num_clusters()) {
        const TileAt tile(grid, index);
        const int row = (tile.row * T::kBlocks + blocks.rank) * T::kTileM;
        const int column = tile.column * T::kTileN + blocks.rank * kPart;
        const int first = tile.first * Depth::kPerInterval, last = tile.last * Depth::kPerInterval;
        for (int chunk = first; chunk < last; ++chunk) {
            auto& stage = memory.stage[ring.stage];
            const Barrier& full = memory.full[ring.stage];
            memory.empty[ring.stage].wait(ring.parity);
            memory.full[ring.stage].expect(sizeof(stage.a) + sizeof(stage.b));
            copy_tile<false>(stage.a, map_a, full, chunk * 64, row,
                             scales.a_batched ? tile.batch : 0, 0);
            copy_tile<(T::kBlocks > 1)>(stage.b + blocks.rank * kPart * kChunkBytes, map_b, full,
                                        chunk * 64, column, scales.b_batched ? tile.batch : 0,
                                        T::Blocks::kAll);
            ring.advance();
        }
    }
}

// @consumer_release deps: Tiles
// This warpgroup has read the stage: said to every block that copies into it.
template <typename T>
OPWELD_FN void consumer_release(typename T::Memory& memory, int stage, const typename T::Blocks& blocks) {
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
// scratch += 16 kSteps values of k of a chunk of a times b^T, from its step `first` on, of operands in
// kParts: the small products first. Every product is exact, but the tensor core cuts a sum after
// 25 bits.
template <int kParts, int kSteps, int kCount>
OPWELD_FN void multiply_split(float (&scratch)[kCount], const unsigned char* a_rows,
                              const unsigned char* b_rows, int first, int add) {
    const Type<half> type;
    // 16 values are 32 bytes, 2 of the descriptor's units; the lower parts are 64 bytes on.
    const uint64_t a = tile_descriptor(a_rows) + 2 * first, b = tile_descriptor(b_rows) + 2 * first;
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
// Leaves `ring` behind the chunks that were read to their end.
template <typename T, int kPiece>
OPWELD_FN void sum_promoted(Sums<T::kTileN, kPiece>& sums, typename T::Memory& memory,
                            Ring<T::kStages>& ring, int group, int first, float upper, float lower) {
    constexpr int kDepth = Chunks<typename T::Mode>::kDepth;
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
            multiply_split<T::Mode::kParts, kSteps>(scratch, stage.a + group * 64 * kChunkBytes,
                                   stage.b + piece * kPiece * kChunkBytes, first, chunk > 0);
            if (release && chunk > 0) {
                wgmma_wait<1>();
                consumer_release<T>(memory, before.stage, blocks);
            }
            before = now;
            now.advance();
        }
        wgmma_wait<0>();
        pin(scratch);
        if (release) consumer_release<T>(memory, before.stage, blocks);
        promote(sums.value[piece], scratch, upper, lower);
        next = now;
    }
    if (to_end) ring = next;
}

// @sum_split deps: sum_promoted
// All intervals of a tile of split operands. `scale` is that of this thread's upper row in the tile's
// first interval, `step` the distance to the next interval's.
template <typename T, int kPiece>
OPWELD_FN void sum_split(Sums<T::kTileN, kPiece>& sums, typename T::Memory& memory,
                         Ring<T::kStages>& ring, const TileAt& tile, int group, const float* scale,
                         int64_t step) {
    constexpr int kSteps = T::kPromoted / 16, kStepsOfChunk = Chunks<typename T::Mode>::kDepth / 16;
#pragma unroll 1
    for (int interval = tile.first; interval < tile.last; ++interval) {
        const float upper = __ldg(scale), lower = __ldg(scale + 8);
        scale += step;
#pragma unroll
        for (int part = 0; part < kInterval / T::kPromoted; ++part) {
            sum_promoted<T, kPiece>(sums, memory, ring, group, part * kSteps % kStepsOfChunk, upper,
                                    lower);
        }
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
        if (interval > tile.first) consumer_release<T>(memory, before.stage, blocks);
        before = ring;
        ring.advance();
    }
    wgmma_wait<0>();
    pin(value);
    if (tile.last > tile.first) consumer_release<T>(memory, before.stage, blocks);
}

// @Staging deps:
// Where a warp lays out 16 rows by 32 columns of its values, so that neighbours in memory are
// neighbours among lanes, and the scales of its tile's columns. The pitch keeps both accesses of
// values free of bank conflicts.
struct Staging {
    static constexpr int kColumns = 32, kPitch = 40, kMostColumns = 256;
    struct alignas(16) OfWarp {
        float value[16][kPitch];
        float factor[kMostColumns];
    };
    OfWarp warp[8];  // those that multiply
};

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

// @stage_values deps: Staging, Sums
// Columns 32 `slice` and on of a warp's sums; a register has no index at run time, so each slice has
// code of its own.
template <int kSlice, int kTileN, int kPiece>
OPWELD_FN void stage_slice(const Sums<kTileN, kPiece>& sums, float (&rows)[16][Staging::kPitch],
                           int lane) {
    const int row = lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
        constexpr int kPiecesBefore = kSlice * 32 / kPiece;
        const int from = kSlice * 32 % kPiece / 2 + i;
        const float* pair = &sums.value[kPiecesBefore][from];
        *reinterpret_cast<float2*>(&rows[row + i / 2 % 2 * 8][column + i / 4 * 8]) =
            make_float2(pair[0], pair[1]);
    }
}

template <int kSlice, int kTileN, int kPiece>
OPWELD_FN void stage_values(int slice, const Sums<kTileN, kPiece>& sums,
                            float (&rows)[16][Staging::kPitch], int lane) {
    if constexpr (kSlice * 32 < kTileN) {
        if (slice == kSlice) {
            stage_slice<kSlice>(sums, rows, lane);
        } else {
            stage_values<kSlice + 1>(slice, sums, rows, lane);
        }
    }
}

// @give_slice deps: EpilogueStore, Staging, load_vector
// Where the values of a warp's rows go: the first of them, of n columns, is row `row` of `m` of a
// result that begins at flat position `begin`.
struct RowsAt {
    int64_t begin;
    int row, m, n;
};

// Up to 16 rows and 32 columns of staged values, times the scales of their columns, to `put`, kLanes
// at once; `at` is the flat position of the first, `pitch` from row to row. Where all rows are there
// kTogether passes follow each other without a branch, as many as there are registers for.
template <int kLanes, int kTogether, bool kScaled, typename Index, typename Put>
OPWELD_FN void give_slice(const Staging::OfWarp& space, int lane, int slice, int rows, int columns,
                          Index at, Index pitch, const Put& put) {
    constexpr int kAcross = Staging::kColumns / kLanes;
    const int column = lane % kAcross * kLanes, first = lane / kAcross;
    if (column >= columns) return;
    const auto factor = load_vector<kLanes>(space.factor + slice * Staging::kColumns + column);
    const auto give = [&](int row, Index place) {
        const auto staged = load_vector<kLanes>(&space.value[row][column]);
        float values[kLanes];
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
            values[i] = kScaled ? staged.lane[i] * factor.lane[i] : staged.lane[i];
        }
        put(place, values);
    };
    at += Index(first) * pitch + Index(column);
    if (kTogether > 1 && rows == 16) {
#pragma unroll kTogether
        for (int i = 0; i < 16; i += kLanes, at += kLanes * pitch) give(first + i, at);
    } else {
#pragma unroll 1
        for (int i = first; i < rows; i += kLanes, at += kLanes * pitch) give(i, at);
    }
}

// @give_slices deps: give_slice, own_thread, stage_values
// A warp's part of a tile, slice by slice, to `put`: 16 rows, kTileN columns from `column` on. Warps
// without rows come along: a branch around this would serialise the wgmma of the next tile.
template <int kLanes, int kTogether, bool kScaled, typename Index, int kTileN, int kPiece,
          typename Put>
OPWELD_FN void give_slices(const Sums<kTileN, kPiece>& sums, Staging::OfWarp& space,
                           const RowsAt& to, int column, const Put& put) {
    const int rows = min(to.m - to.row, 16), columns = min(to.n - column, kTileN);
    const Index pitch = Index(to.n);
    const int lane = own_thread() % 32;
    Index at = Index(to.begin) + Index(to.row) * pitch + Index(column);
#pragma unroll 1
    for (int slice = 0; slice * Staging::kColumns < columns; ++slice, at += Staging::kColumns) {
        __syncwarp();
        stage_values<0>(slice, sums, space.value, lane);
        __syncwarp();
        give_slice<kLanes, kTogether, kScaled>(space, lane, slice, rows,
                                               columns - slice * Staging::kColumns, at, pitch, put);
    }
}

// @give_sums deps: give_slices
// A warp's part of a tile to the epilogue, whose code stands here for each way of calling it, kLanes
// at once or one; or to the parts of sums.
template <bool kScaled, int kTileN, typename Epilogue, int kPiece>
OPWELD_FN void give_sums(const Sums<kTileN, kPiece>& sums, const EpilogueStore<Epilogue>& sink,
                         Staging::OfWarp& space, const RowsAt& to, int column) {
    constexpr int kLanes = Epilogue::kLanes, kTogether = kTileN > 128 ? 1 : 4;
    if (sink.parts && to.n % 4 == 0) {
        float* const parts = sink.parts;
        give_slices<4, kTogether, kScaled, int64_t>(
            sums, space, to, column, [=](int64_t at, const float(&values)[4]) {
                __stcg(reinterpret_cast<float4*>(parts + at),
                       make_float4(values[0], values[1], values[2], values[3]));
            });
    } else if (sink.parts) {
        float* const parts = sink.parts;
        give_slices<1, 1, kScaled, int64_t>(
            sums, space, to, column,
            [=](int64_t at, const float(&values)[1]) { parts[at] = values[0]; });
    } else if (sink.paired && sink.narrow && to.n % kLanes == 0) {
        give_slices<kLanes, kTogether, kScaled, uint32_t>(
            sums, space, to, column,
            [&](uint32_t at, const float(&values)[kLanes]) { sink.epilogue(at, values); });
    } else {
        give_slices<1, 1, kScaled, uint64_t>(
            sums, space, to, column,
            [&](uint64_t at, const float(&values)[1]) { sink.epilogue(at, values); });
    }
}

// @find_cancellation_sm90 deps: Drowned, largest_scale, Sums
// Looks among a warp's sums, before the scales of their columns, for cancelled ones. `scale`: of this
// thread's upper row in the first of these intervals; `rows`: how many of the rows from it on exist.
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

// @make_stages deps: Tiles, sync_cluster
template <typename T>
OPWELD_FN typename T::Memory& make_stages() {
    auto& memory = tile_memory<typename T::Memory>();
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < T::kStages; ++stage) {
            memory.full[stage].init(1);
            memory.empty[stage].init(2 * T::kBlocks);
        }
        publish_barriers();
    }
    if constexpr (T::kBlocks > 1) {
        sync_cluster();
    } else {
        __syncthreads();
    }
    return memory;
}

// @TileSums deps: Sums, TileScales, TileGrid
// How the sums of a tile are made: `sum` for one, whose sums begin as zeros.
template <typename Mode, bool kScaled = Mode::kScaled>
struct TileSums;

// @SplitSums deps: TileSums, find_cancellation_sm90, start_factors, sum_split, copy_groups
template <typename Mode>
struct TileSums<Mode, true> {
    template <typename T>
    static constexpr int kPiece = 128;

    template <typename T, typename Staging, typename FirstRow>
    __device__ __forceinline__ static void sum(Sums<T::kTileN, 128>& sums,
                                               typename T::Memory& memory, Ring<T::kStages>& ring,
                                               const TileGrid& grid, const TileAt& tile, int group,
                                               const TileScales& scales, int64_t column, int64_t m,
                                               int64_t n, const Staging& staging,
                                               const FirstRow& first_row) {
        const int lane = threadIdx.x % 32;
        const int64_t of_batch = scales.b_batched ? tile.batch * n : 0;
        start_factors<T::kTileN>(staging(), scales.b + of_batch + column, int(n - column));
        const int64_t first =
            (scales.a_batched ? int64_t(tile.batch) : 0) * grid.intervals + tile.first;
        const float* scale = scales.a + first * scales.a_rows + first_row(tile) + lane / 4;
        sum_split<T, 128>(sums, memory, ring, tile, group, scale, scales.a_rows);
        await_copies<0>();
        if (scales.call->lossy) {
            find_cancellation<Mode::kParts>(sums, scale, scales.a_rows, tile.last - tile.first,
                                       m - first_row(tile) - lane / 4, scales.call);
        }
    }
};

// @WholeSums deps: TileSums, sum_whole
template <typename Mode>
struct TileSums<Mode, false> {
    template <typename T>
    static constexpr int kPiece = T::kTileN;

    template <typename T, typename Staging, typename FirstRow>
    __device__ __forceinline__ static void sum(Sums<T::kTileN, T::kTileN>& sums,
                                               typename T::Memory& memory, Ring<T::kStages>& ring,
                                               const TileGrid&, const TileAt& tile, int group,
                                               const TileScales&, int64_t, int64_t, int64_t,
                                               const Staging&, const FirstRow&) {
        sum_whole<T, T::kTileN>(sums, memory, ring, tile, group);
    }
};

// @contract_sm90_kernel deps: TileSums, make_stages, own_thread, sync_cluster, fill_stages, give_sums, setmaxnreg, dependents, prefetch_map
template <typename T, typename Epilogue>
OPWELD_FN void multiply_tiles(typename T::Memory& memory, const TileGrid& grid,
                              const TileScales& scales, const EpilogueStore<Epilogue>& sink, int64_t m,
                              int64_t n) {
    using Making = TileSums<typename T::Mode>;
    const int group = threadIdx.x / 128 - 1;
    const typename T::Blocks blocks;
    const auto staging = [&]() -> auto& { return memory.staging.warp[own_thread() / 32 - 4]; };
    const auto first_row = [&](const TileAt& tile) {
        return (tile.row * T::kBlocks + blocks.rank) * T::kTileM + (own_thread() / 32 - 4) * 16;
    };
    Ring<T::kStages> ring;
    for (int index = cluster_index(); index < grid.count(); index += num_clusters()) {
        const TileAt tile(grid, index);
        const int64_t column = int64_t(tile.column) * T::kTileN;
        Sums<T::kTileN, Making::template kPiece<T>> sums;
        sums.clear();
        Making::template sum<T>(sums, memory, ring, grid, tile, group, scales, column, m, n,
                                staging, first_row);
        // With several parts of k, part `split` is a result of its own.
        const int64_t result = int64_t(tile.split) * grid.batches + tile.batch;
        const RowsAt to{result * m * n, first_row(tile), int(m), int(n)};
        give_sums<T::Mode::kScaled>(sums, sink, staging(), to, int(column));
    }
}

template <typename T, typename Epilogue>
static __global__ void __launch_bounds__(T::kThreads, 1)
    contract_sm90_kernel(const __grid_constant__ CUtensorMap map_a,
                         const __grid_constant__ CUtensorMap map_b, const TileGrid grid,
                         const TileScales scales, const EpilogueStore<Epilogue> sink, const int64_t m,
                         const int64_t n) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    auto& memory = make_stages<T>();
    griddepcontrol_wait();
    const bool fits = !scales.call || scales.call->needs_fallback == 0;
    if (!fits && threadIdx.x == 0) scales.call->again = 1;
    if (threadIdx.x < 128) {
        setmaxnreg<40, false>();
        if (threadIdx.x == 0 && fits) {
            prefetch_map(&map_a);
            prefetch_map(&map_b);
            fill_stages<T>(memory, &map_a, &map_b, grid, scales);
        }
    } else {
        setmaxnreg<232, true>();
        if (fits) multiply_tiles<T>(memory, grid, scales, sink, m, n);
    }
    // A block must not end while another may still copy into its memory or arrive at its barriers.
    if constexpr (T::kBlocks > 1) sync_cluster();
#endif
}

}  // namespace op
