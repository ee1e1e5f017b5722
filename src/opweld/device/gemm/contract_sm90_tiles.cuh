// Products on Hopper's tensor cores: the tiles of a product, the ring of shared memory that they
// come through, and the cluster of blocks that share one.

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

// @tile_at deps: TileGrid
// Tile `index` of what a loader loads.
template <typename Loader>
OPWELD_FN TileAt tile_at(const Loader&, const TileGrid& grid, int index) {
    return TileAt(grid, index);
}

// @Chunks deps: kInterval
// What 128 bytes of a packed row hold, by mode: a chunk.
//   Faithful: 32 values as 32 upper parts and 32 lower parts.
//   the others: 64 values, or the fewer of a narrower interval, in as many fewer bytes.
template <typename Mode, int kWidth = kInterval>
struct Chunks {
    static_assert(Mode::kParts == 1 || kWidth == kInterval, "two parts are packed in 128 bytes");
    static constexpr int kDepth = kWidth / Mode::kParts, kPerInterval = Mode::kParts;
    static constexpr int kBytes = 2 * kWidth;
};

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

// @Stages deps: Barrier, Staging
// The ring in shared memory. `full` gets the bytes of the copies, `empty` an arrival of each
// warpgroup in each block that this block's tiles come from.
template <int kTileM, int kTileN, int kStages, int kChunkBytes>
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
// Blocks of a cluster stand one below the other and share their tile of b: each copies its part of
// it for all of them.
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
// split operands is promoted; fewer are more exact and slower. Intervals have kWidth values of k.
template <typename ModeOf, int kTileNOf, int kBlocksOf, int kStagesOf, int kPromotedOf,
          int kResidentOf = 1, int kWidthOf = kInterval>
struct Tiles {
    using Mode = ModeOf;
    using Depth = Chunks<Mode, kWidthOf>;
    using Blocks = Cluster<kBlocksOf>;
    static constexpr int kTileM = 128, kTileN = kTileNOf, kBlocks = kBlocksOf;
    static constexpr int kStages = kStagesOf, kPromoted = kPromotedOf;
    static constexpr int kReleases = 2 * kBlocks;  // of a stage: by each warpgroup of a cluster
    static constexpr int kWidth = kWidthOf, kChunkBytes = Depth::kBytes;
    using Memory = Stages<kTileM, kTileN, kStages, kChunkBytes>;
    static constexpr int kBytes = kTileMemoryBytes<Memory>;
    static constexpr int kThreads = 384;
    // Blocks that share a multiprocessor, and the registers of their threads.
    static constexpr int kResident = kResidentOf;
    static constexpr int kLoaderRegisters = kResident == 1 ? 40 : 24;
    static constexpr int kSumRegisters = kResident == 1 ? 232 : 104;
    // There are registers for the products of two intervals.
    static constexpr bool kAhead = Mode::kParts == 1 && kTileN <= 128 && kResident == 1;
};

// @TileScales deps: CallState
// Scales of split operands, a [batch][interval][a_rows] and b [batch][n], and what is known of the
// operands: where they do not fit, or lost digits count, another kernel makes the product. Whole
// operands have none; those of convolutions are marked, and have no `call`.
struct TileScales {
    const float *a, *b;
    int64_t a_rows;
    int a_batched, b_batched;
    CallHead* call;
};

// @make_stages deps: Tiles, sync_cluster
template <typename T>
OPWELD_FN typename T::Memory& make_stages() {
    auto& memory = tile_memory<typename T::Memory>();
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < T::kStages; ++stage) {
            memory.full[stage].init(1);
            memory.empty[stage].init(T::kReleases);
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

}  // namespace op
