// Matrix products on the tensor cores of sm_80 and up, from packed operands. A packed row is a
// sequence of blocks of 128 bytes. Faithful: 32 k a block, 32 halves `hi` and 32 halves `lo` whose
// sum times the scale is the value; Tf32: 64 k, halves times the scale; Half and Bfloat16: 64 k as
// they are. Zeros fill the last 64 k. Scales are powers of two, one for each row and 64 k of a
// ([k / 64][row]), one for each row of b.

namespace op {

// @Packed deps:
struct Packed {
    const void* data;
    const float* scale;               // null where the mode has none
    int64_t row, batch, scale_batch;  // steps, in bytes and, of scales, in floats; 0: broadcast
};

// @PackedProduct deps: Packed
struct PackedProduct {
    Packed a, b;
    int64_t batches, m, n, blocks;  // blocks of 128 bytes a row
    int64_t row_bytes;              // that exist in a row: the rest of the last block is zero
};

// @MmaFormat deps:
// What a block of 128 bytes holds, by mode.
template <typename Mode>
struct MmaFormat {
    using Element = typename Mode::Storage;  // bfloat16 or what is packed as halves
    static constexpr int kParts = Mode::kParts, kSteps = 4 / kParts;  // of 16 k
    static constexpr int kScaleBlocks = kParts;                       // blocks of one scale of a
};

// @MmaTile deps:
// Eight warps, two down and four across, make a tile of the result. A stage is one block of each
// row; 3 of them fit the 99 KiB of shared memory that the smallest device has.
struct MmaTile {
    static constexpr int kThreads = 256, kStages = 3;
    static constexpr int kM = 128, kN = 128;
    static constexpr int kWarpM = kM / 2, kWarpN = kN / 4;
    static constexpr int kDown = kWarpM / 16, kAcross = kWarpN / 8;  // instructions of a warp
    static constexpr int kRowBytes = 128;
    static constexpr int kScaleBytes = kM * 4;
    static constexpr int kStageBytes = (kM + kN) * kRowBytes + kScaleBytes;
    static constexpr int kPitch = kN + 8;  // floats of a result row: pairs of a warp do not collide
    static constexpr int kBytes = kStages * kStageBytes;
    static_assert(kM * kPitch * 4 <= kBytes, "the result does not fit the stages' memory");

    // Where 16 bytes of a row lie in a stage: rotated, so that 8 rows of a column do not collide.
    OPWELD_FN unsigned int place(int row, int chunk) {
        return (unsigned int)(row * kRowBytes + (chunk ^ (row % 8)) * 16);
    }
};

// @MmaCopies deps: MmaFormat, MmaTile, PackedProduct, copy_async, copy_async_word
// What one thread copies of every stage: the same 16 bytes of every 32nd row of both operands, and
// of a's scales one in turn.
template <typename Mode>
struct MmaCopies {
    static constexpr int kRows = MmaTile::kThreads / 8;
    const char *a, *b;  // of its first row
    const float* scale;
    int64_t a_row, b_row, row_bytes, scales;  // scales: rows of a
    int a_rows, b_rows, row, chunk;

    OPWELD_FN MmaCopies over(const PackedProduct& p, int64_t batch, int64_t m, int64_t n) {
        MmaCopies copies;
        copies.row = int(threadIdx.x) / 8, copies.chunk = int(threadIdx.x) % 8;
        copies.a_row = p.a.row, copies.b_row = p.b.row;
        copies.row_bytes = p.row_bytes, copies.scales = p.m;
        copies.a_rows = int(p.m - m < MmaTile::kM ? p.m - m : MmaTile::kM);
        copies.b_rows = int(p.n - n < MmaTile::kN ? p.n - n : MmaTile::kN);
        copies.a = static_cast<const char*>(p.a.data) + batch * p.a.batch + m * p.a.row;
        copies.b = static_cast<const char*>(p.b.data) + batch * p.b.batch + n * p.b.row;
        if constexpr (Mode::kScaled) copies.scale = p.a.scale + batch * p.a.scale_batch + m;
        return copies;
    }
    __device__ __forceinline__ void start(unsigned int stage, int64_t block) const {
        constexpr unsigned int kB = MmaTile::kM * MmaTile::kRowBytes;
        const int64_t at = block * MmaTile::kRowBytes + chunk * 16, left = row_bytes - at;
        const int bytes = left <= 0 ? 0 : (left < 16 ? int(left) : 16);
        rows<MmaTile::kM>(stage, a + (bytes ? at : 0), a_row, a_rows, bytes);
        rows<MmaTile::kN>(stage + kB, b + (bytes ? at : 0), b_row, b_rows, bytes);
        if constexpr (Mode::kScaled) {
            constexpr unsigned int kScales = kB + MmaTile::kN * MmaTile::kRowBytes;
            const int own = int(threadIdx.x);
            if (own >= MmaTile::kM) return;
            const int64_t first = block / MmaFormat<Mode>::kScaleBlocks * scales;
            copy_async_word(stage + kScales + 4 * own, scale + first + (own < a_rows ? own : 0),
                            own < a_rows ? 4 : 0);
        }
    }
    template <int kCount>
    __device__ __forceinline__ void rows(unsigned int to, const char* from, int64_t step, int exist,
                                         int bytes) const {
#pragma unroll
        for (int first = 0; first < kCount; first += kRows) {
            const bool inside = first + row < exist;
            const char* own = from + (inside ? first + row : 0) * step;
            copy_async(to + MmaTile::place(first + row, chunk), own, inside ? bytes : 0);
        }
    }
};

// @MmaFragments deps: MmaTile, load_matrices
// What a warp's instructions take of 16 k of both operands.
struct MmaFragments {
    unsigned int a[MmaTile::kDown][4], b[MmaTile::kAcross][2];

    // `chunk`: of 16 bytes, the first of two
    __device__ __forceinline__ void load_a(unsigned int stage, int chunk) {
        const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
        const int row = warp / 4 * MmaTile::kWarpM + lane % 16;
#pragma unroll
        for (int i = 0; i < MmaTile::kDown; ++i)
            load_matrices(a[i], stage + MmaTile::place(row + 16 * i, chunk + lane / 16));
    }
    __device__ __forceinline__ void load_b(unsigned int stage, int chunk) {
        constexpr unsigned int kB = MmaTile::kM * MmaTile::kRowBytes;
        const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
        const int row = warp % 4 * MmaTile::kWarpN + lane % 8 + lane / 16 * 8;
#pragma unroll
        for (int j = 0; j < MmaTile::kAcross; j += 2) {
            unsigned int words[4];
            load_matrices(words, stage + kB + MmaTile::place(row + 8 * j, chunk + lane / 8 % 2));
            b[j][0] = words[0], b[j][1] = words[1], b[j + 1][0] = words[2], b[j + 1][1] = words[3];
        }
    }
};

// @MmaSums deps: MmaFragments, exponents, mma_16x8x16
// A thread's share of the sums of a warp's tile.
struct MmaSums {
    float of[MmaTile::kDown][MmaTile::kAcross][4];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < MmaTile::kDown; ++i)
#pragma unroll
            for (int j = 0; j < MmaTile::kAcross; ++j)
#pragma unroll
                for (int v = 0; v < 4; ++v) of[i][j][v] = 0.0f;
    }
    template <typename Element>
    __device__ __forceinline__ void add(const MmaFragments& a, const MmaFragments& b) {
#pragma unroll
        for (int i = 0; i < MmaTile::kDown; ++i)
#pragma unroll
            for (int j = 0; j < MmaTile::kAcross; ++j)
                mma_16x8x16<Element>(of[i][j], a.a[i], b.b[j]);
    }
    // Adds sums of one block, each row times its scale. The tensor core cuts off instead of
    // rounding, so long chains drift: these additions round to nearest.
    __device__ __forceinline__ void promote(const MmaSums& block, const float* scales) {
        const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
        const float* own = scales + warp / 4 * MmaTile::kWarpM + lane / 4;
#pragma unroll
        for (int i = 0; i < MmaTile::kDown; ++i) {
            const float scale[2] = {own[16 * i], own[16 * i + 8]};
#pragma unroll
            for (int j = 0; j < MmaTile::kAcross; ++j)
#pragma unroll
                for (int v = 0; v < 4; ++v)
                    of[i][j][v] = fmaf(block.of[i][j][v], scale[v / 2], of[i][j][v]);
        }
    }
    // The same where the columns of the block have scales, too.
    __device__ __forceinline__ void promote(const MmaSums& block, const float* scales,
                                            const float* columns) {
        const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
        const float* own = scales + warp / 4 * MmaTile::kWarpM + lane / 4;
        const float* across = columns + warp % 4 * MmaTile::kWarpN + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < MmaTile::kAcross; ++j) {
            const float column[2] = {across[8 * j], across[8 * j + 1]};
#pragma unroll
            for (int i = 0; i < MmaTile::kDown; ++i)
#pragma unroll
                for (int v = 0; v < 4; ++v)
                    of[i][j][v] = fmaf(block.of[i][j][v], own[16 * i + v / 2 * 8] * column[v % 2],
                                       of[i][j][v]);
        }
    }
    // Whether any is Inf or NaN.
    __device__ __forceinline__ bool are_odd() const {
        bool odd = false;
#pragma unroll
        for (int i = 0; i < MmaTile::kDown; ++i)
#pragma unroll
            for (int j = 0; j < MmaTile::kAcross; ++j)
#pragma unroll
                for (int v = 0; v < 4; ++v) odd |= exponent_of(of[i][j][v]) == 128;
        return odd;
    }
    // Lays the sums out as a tile of floats in shared memory.
    __device__ __forceinline__ void lay_out(float* tile) const {
        const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
        const int row = warp / 4 * MmaTile::kWarpM + lane / 4;
        const int column = warp % 4 * MmaTile::kWarpN + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < MmaTile::kDown; ++i)
#pragma unroll
            for (int j = 0; j < MmaTile::kAcross; ++j)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int at = (row + 16 * i + 8 * half) * MmaTile::kPitch + column + 8 * j;
                    const float* pair = &of[i][j][2 * half];  // stores of floats made ptxas spill
                    *reinterpret_cast<uint2*>(tile + at) =
                        make_uint2(__float_as_uint(pair[0]), __float_as_uint(pair[1]));
                }
    }
};

// @mma_products deps: MmaFormat, MmaSums
// Adds the products of one stage. Of values in two parts the small products come first, while the
// block's sums are small too and nothing of them is cut off. kHolds: upper parts stay in registers
// until they meet each other, else they are read again.
template <typename Mode, bool kHolds = true>
OPWELD_FN void mma_products(MmaSums& into, unsigned int stage) {
    using Format = MmaFormat<Mode>;
    using Element = typename Format::Element;
    if constexpr (Format::kParts == 2) {
        MmaFragments high[Format::kSteps];
#pragma unroll
        for (int step = 0; step < Format::kSteps; ++step) {
            MmaFragments low;
            high[step].load_a(stage, 2 * step);
            high[step].load_b(stage, 2 * step);
            low.load_a(stage, 4 + 2 * step);
            into.template add<Element>(low, high[step]);
            low.load_b(stage, 4 + 2 * step);
            into.template add<Element>(high[step], low);
        }
#pragma unroll
        for (int step = 0; step < Format::kSteps; ++step) {
            if constexpr (!kHolds) {
                high[step].load_a(stage, 2 * step);
                high[step].load_b(stage, 2 * step);
            }
            into.template add<Element>(high[step], high[step]);
        }
    } else {
#pragma unroll
        for (int step = 0; step < Format::kSteps; ++step) {
            MmaFragments both;
            both.load_a(stage, 2 * step);
            both.load_b(stage, 2 * step);
            into.template add<Element>(both, both);
        }
    }
}

// @mma_stage deps: mma_products
// Adds the products of one stage, under scales apart.
template <typename Mode>
OPWELD_FN void mma_stage(MmaSums& sums, unsigned int stage, const float* scales) {
    if constexpr (Mode::kScaled) {
        MmaSums block;
        block.clear();
        mma_products<Mode>(block, stage);
        sums.promote(block, scales);
    } else {
        mma_products<Mode>(sums, stage);
    }
}

// @MmaTask deps: MmaTile
// Which tile a block makes, and of which part of k. Tiles of 8 rows of tiles lie together, so that
// what runs at once shares operands.
struct MmaTask {
    int64_t split, batch, m, n;

    template <typename Extents>
    static __host__ __device__ int64_t count(const Extents& p, int splits) {
        return (p.m + MmaTile::kM - 1) / MmaTile::kM * ((p.n + MmaTile::kN - 1) / MmaTile::kN) *
               p.batches * splits;
    }
    template <typename Extents>
    OPWELD_FN MmaTask of(int64_t task, const Extents& p) {
        constexpr int64_t kGroup = 8;
        const int64_t down = (p.m + MmaTile::kM - 1) / MmaTile::kM;
        const int64_t across = (p.n + MmaTile::kN - 1) / MmaTile::kN, tiles = down * across;
        const int64_t tile = task % tiles, group = tile / (kGroup * across);
        const int64_t rows = down - group * kGroup < kGroup ? down - group * kGroup : kGroup;
        const int64_t in_group = tile % (kGroup * across);
        return {task / tiles / p.batches, task / tiles % p.batches,
                (group * kGroup + in_group % rows) * MmaTile::kM, in_group / rows * MmaTile::kN};
    }
};

// @give_task deps: MmaTask, give_tile
// A block gives the tile that a task has laid out in shared memory.
template <typename Extents, typename Epilogue>
OPWELD_FN void give_task(const EpilogueStore<Epilogue>& sink, const MmaTask& task, const Extents& p,
                         const float* tile) {
    const int64_t rows = p.m - task.m < MmaTile::kM ? p.m - task.m : MmaTile::kM;
    give_tile<MmaTile::kThreads, MmaTile::kN, MmaTile::kPitch>(
        sink, task.split, tile, rows, p.n - task.n, (task.batch * p.m + task.m) * p.n + task.n,
        p.n);
}

// @find_cancellation_mma deps: Drowned, largest_scale, MmaCopies, MmaSums
// Looks among a warp's sums of `count` blocks of k, before the scales of their columns, for
// cancelled ones. `scale`: of the tile's first row in the first of these blocks.
template <typename Mode>
OPWELD_FN void find_cancellation(const MmaSums& sums, const MmaCopies<Mode>& copies,
                                 const float* scale, int count, CallHead* call) {
    constexpr int kScaleBlocks = MmaFormat<Mode>::kScaleBlocks;
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const int row = warp / 4 * MmaTile::kWarpM + lane / 4;
    const int intervals = (count + kScaleBlocks - 1) / kScaleBlocks;
    Drowned<Mode::kParts> cancelled;
#pragma unroll
    for (int i = 0; i < 2 * MmaTile::kDown; ++i) {
        const int own = row + 8 * i;
        const int those = own < copies.a_rows ? intervals : 0;
        const float most = largest_scale(scale + own, copies.scales, those);
#pragma unroll
        for (int j = 0; j < MmaTile::kAcross; ++j)
#pragma unroll
            for (int v = 0; v < 2; ++v) cancelled.add(sums.of[i / 2][j][i % 2 * 2 + v], most);
    }
    cancelled.tell(call);
}

// @mma_product_kernel deps: MmaCopies, find_cancellation_mma, give_task, mma_stage, shared_address
// The product, each tile's k in `splits` parts of `each` blocks. Where `call` is given and says
// that the operands do not fit, or that lost digits count, another kernel makes the product.
template <typename Mode, typename Epilogue>
__global__ void __launch_bounds__(MmaTile::kThreads, Mode::kScaled ? 1 : 2)
    mma_product_kernel(PackedProduct p, int splits, int64_t each, EpilogueStore<Epilogue> sink,
                       CallHead* call) {
    extern __shared__ __align__(128) unsigned char mma_memory[];
    if (call && call->needs_fallback != 0) {
        call->again = 1;
        return;
    }
    constexpr int kStages = MmaTile::kStages, kStageBytes = MmaTile::kStageBytes;
    const unsigned int memory = shared_address(mma_memory);
    const int64_t tasks = MmaTask::count(p, splits);
    for (int64_t number = blockIdx.x; number < tasks; number += gridDim.x) {
        const MmaTask task = MmaTask::of(number, p);
        const auto copies = MmaCopies<Mode>::over(p, task.batch, task.m, task.n);
        const int64_t first = task.split * each;
        const int count = int(p.blocks - first < each ? p.blocks - first : each);
#pragma unroll
        for (int stage = 0; stage < kStages - 1; ++stage) {
            if (stage < count) copies.start(memory + stage * kStageBytes, first + stage);
            commit_copies();
        }
        MmaSums sums;
        sums.clear();
        int slot = 0, filled = kStages - 1;
#pragma unroll 1
        for (int block = 0; block < count; ++block) {
            await_copies<kStages - 2>();
            __syncthreads();  // all have their copies, and have used the stage filled next
            if (block + kStages - 1 < count)
                copies.start(memory + filled * kStageBytes, first + block + kStages - 1);
            commit_copies();
            const auto* scales = reinterpret_cast<const float*>(mma_memory + slot * kStageBytes +
                                                                kStageBytes - MmaTile::kScaleBytes);
            mma_stage<Mode>(sums, memory + slot * kStageBytes, scales);
            slot = slot + 1 < kStages ? slot + 1 : 0;
            filled = filled + 1 < kStages ? filled + 1 : 0;
        }
        if constexpr (Mode::kScaled) {
            if (call && call->lossy) {
                const int64_t interval = first / MmaFormat<Mode>::kScaleBlocks;
                find_cancellation<Mode>(sums, copies, copies.scale + interval * p.m, count, call);
            }
        }
        await_copies<0>();
        __syncthreads();  // the stages become the result's tile
        auto* tile = reinterpret_cast<float*>(mma_memory);
        sums.lay_out(tile);
        __syncthreads();
        if constexpr (Mode::kScaled) {
            const int column = int(threadIdx.x) % MmaTile::kN;
            const bool exists = task.n + column < p.n;
            const float scale =
                exists ? p.b.scale[task.batch * p.b.scale_batch + task.n + column] : 1.0f;
            constexpr int kAtOnce = MmaTile::kThreads / MmaTile::kN;
            for (int row = int(threadIdx.x) / MmaTile::kN; row < MmaTile::kM; row += kAtOnce)
                tile[row * MmaTile::kPitch + column] *= scale;
            __syncthreads();
        }
        give_task(sink, task, p, tile);
        __syncthreads();  // the tile becomes stages
    }
}

}  // namespace op
