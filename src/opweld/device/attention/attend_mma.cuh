// Attention on the tensor cores: what a warp does with one tile of keys and values. Sums lie as
// mma.cuh says: of each 16 rows a lane has rows lane / 4 and 8 on, of each 8 columns two
// neighbours.

namespace op {

// @PartsRows deps: parts_place
// Where parts of rows of kLength values lie: those of a row side by side.
template <int kLength>
struct PartsRows {
    static __device__ __forceinline__ int at(int row, int place, bool lower) {
        return parts_place<kLength>(row, (lower * kLength + place) / 8) + place % 8 * 2;
    }
};

// @AttendTileMma deps: AttendLines, PartsRows
// Four warps make kRows rows of the result, kDown times 16 each, and take kKeys keys at a time.
// What they take of keys and values is an image of shared memory: rows of both parts and a scale
// for each.
template <typename ProblemOf>
struct AttendTileMma {
    using Problem = ProblemOf;
    static constexpr int kDepth = (Problem::kDepth + 31) / 32 * 32;
    static constexpr int kColumns = (Problem::kColumns + 31) / 32 * 32;
    static constexpr int kWide = kDepth > kColumns ? kDepth : kColumns;
    static constexpr int kThreads = 128, kBlockThreads = kThreads;
    static constexpr int kSplitThreads = 128, kSplitBlocks = 5;  // at once
    static constexpr int kDown = kWide <= 32 ? 2 : 1, kRows = kThreads / 32 * 16 * kDown;
    static constexpr int kKeys = kWide <= 128 ? 32 : 16;
    using Queries = PartsRows<kDepth>;
    using Keys = PartsRows<kDepth>;
    using Values = PartsRows<kKeys>;
    static constexpr int kKeyBytes = kKeys * (kDepth + 1) * 4;
    static constexpr int kValueBytes = kColumns * (kKeys + 1) * 4;
    static constexpr int kImageBytes = kKeyBytes + kValueBytes;
    static constexpr int kQueryBytes = kRows * (kDepth + 1) * 4;
    static constexpr int kPitch = kColumns + 8;  // floats of a result row
    static constexpr int kResultBytes = kRows * kPitch * 4;
    static constexpr int kBytes =
        kQueryBytes + kImageBytes > kResultBytes ? kQueryBytes + kImageBytes : kResultBytes;
    static constexpr int kBlocks = 232448 / (kBytes + 1024) < 2 ? 1 : 2;  // at once, at least

    static __host__ __device__ int64_t tiles(int64_t keys) { return (keys + kKeys - 1) / kKeys; }
};

// @PartsTile deps: load_matrices, parts_place
// Rows of kLength values in two parts in shared memory, as operands of 16 values of k.
template <int kLength>
struct PartsTile {
    unsigned int at;

    // 16 rows from `row` on, as operand a
    __device__ __forceinline__ void load_a(unsigned int (&words)[4], int row, int step,
                                           bool lower) const {
        const int lane = int(threadIdx.x) % 32;
        const int chunk = (lower ? kLength / 8 : 0) + 2 * step + lane / 16;
        load_matrices(words, at + parts_place<kLength>(row + lane % 16, chunk));
    }
    // 8 * kCount rows from `row` on, as operands b
    template <int kCount>
    __device__ __forceinline__ void load_b(unsigned int (&words)[kCount][2], int row, int step,
                                           bool lower) const {
        const int lane = int(threadIdx.x) % 32;
        const int chunk = (lower ? kLength / 8 : 0) + 2 * step + lane / 8 % 2;
        const int own = row + lane % 8 + lane / 16 * 8;
#pragma unroll
        for (int j = 0; j < kCount; j += 2) {
            unsigned int four[4];
            load_matrices(four, at + parts_place<kLength>(own + 8 * j, chunk));
            words[j][0] = four[0], words[j][1] = four[1];
            words[j + 1][0] = four[2], words[j + 1][1] = four[3];
        }
    }
};

// @QueriesMma deps:
// A warp's rows in two parts as operands a, steps of 16 k: in registers or where they lie.
template <int kLength, int kDown, bool kHolds>
struct QueriesMma;

// @QueriesInRegisters_mma deps: PartsTile, QueriesMma
template <int kLength, int kDown>
struct QueriesMma<kLength, kDown, true> {
    unsigned int upper[kDown][kLength / 16][4], lower[kDown][kLength / 16][4];

    __device__ __forceinline__ QueriesMma(const PartsTile<kLength>& tile, int row) {
#pragma unroll
        for (int m = 0; m < kDown; ++m)
#pragma unroll
            for (int step = 0; step < kLength / 16; ++step) {
                tile.load_a(upper[m][step], row + 16 * m, step, false);
                tile.load_a(lower[m][step], row + 16 * m, step, true);
            }
    }
    __device__ __forceinline__ void get(unsigned int (&words)[4], int m, int step, bool low) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = low ? lower[m][step][i] : upper[m][step][i];
    }
};

// @QueriesInMemory_mma deps: PartsTile, QueriesMma
template <int kLength, int kDown>
struct QueriesMma<kLength, kDown, false> {
    PartsTile<kLength> tile;
    int row;

    __device__ __forceinline__ QueriesMma(const PartsTile<kLength>& all, int first)
        : tile(all), row(first) {}
    __device__ __forceinline__ void get(unsigned int (&words)[4], int m, int step, bool low) const {
        tile.load_a(words, row + 16 * m, step, low);
    }
};

// @multiply_parts deps: PartsTile, half, mma_16x8x16
// sums = a times rows `row` and on of b, over kSteps times 16 k from `step` on, without lower by
// lower parts. The small products come first, while sums are small too and nothing of them is cut
// off; short sums, as the tensor core cuts off where it should round.
template <int kSteps, int kDown, int kAcross, int kLength, typename A>
OPWELD_FN void multiply_parts(float (&sums)[kDown][kAcross][4], const A& a,
                              const PartsTile<kLength>& b, int row, int step) {
    unsigned int upper[kSteps][kDown][4], across[kSteps][kAcross][2];
#pragma unroll
    for (int m = 0; m < kDown; ++m)
#pragma unroll
        for (int n = 0; n < kAcross; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
        b.load_b(across[s], row, step + s, false);
        unsigned int low_across[kAcross][2];
        b.load_b(low_across, row, step + s, true);
#pragma unroll
        for (int m = 0; m < kDown; ++m) {
            unsigned int low[4];
            a.get(upper[s][m], m, step + s, false);
            a.get(low, m, step + s, true);
#pragma unroll
            for (int n = 0; n < kAcross; ++n) mma_16x8x16<half>(sums[m][n], low, across[s][n]);
#pragma unroll
            for (int n = 0; n < kAcross; ++n)
                mma_16x8x16<half>(sums[m][n], upper[s][m], low_across[n]);
        }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int m = 0; m < kDown; ++m)
#pragma unroll
            for (int n = 0; n < kAcross; ++n)
                mma_16x8x16<half>(sums[m][n], upper[s][m], across[s][n]);
}

// @attend_products deps: QueriesMma, multiply_parts
// products = q times the keys of a tile, before scales. Sums of 32 values are added up apart.
template <typename Tile, typename Queries>
OPWELD_FN void attend_products(float (&products)[Tile::kDown][Tile::kKeys / 8][4],
                               const Queries& queries, unsigned int image) {
    constexpr int kDown = Tile::kDown, kAcross = Tile::kKeys / 8 < 4 / kDown ? 2 : 4 / kDown;
    const PartsTile<Tile::kDepth> keys{image};
#pragma unroll
    for (int first = 0; first < Tile::kKeys / 8; first += kAcross)
#pragma unroll
        for (int step = 0; step < Tile::kDepth / 16; step += 2) {
            float sums[kDown][kAcross][4];
            multiply_parts<2>(sums, queries, keys, 8 * first, step);
#pragma unroll
            for (int m = 0; m < kDown; ++m)
#pragma unroll
                for (int n = 0; n < kAcross; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        float& own = products[m][first + n][i];
                        own = step ? own + sums[m][n][i] : sums[m][n][i];
                    }
        }
}

// @attend_values deps: multiply_parts
// Adds the powers times the values of a tile to the sums, rounding to nearest.
template <typename Tile, typename P>
OPWELD_FN void attend_values(float (&sums)[Tile::kDown][Tile::kColumns / 8][4], const P& powers,
                             unsigned int image, const float* column_scales) {
    constexpr int kDown = Tile::kDown, kAcross = 4 / kDown;
    const PartsTile<Tile::kKeys> values{image};
    const int pair = int(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int first = 0; first < Tile::kColumns / 8; first += kAcross) {
        float own[kDown][kAcross][4];
        multiply_parts<Tile::kKeys / 16>(own, powers, values, 8 * first, 0);
#pragma unroll
        for (int n = 0; n < kAcross; ++n) {
            const float* at = column_scales + 8 * (first + n) + pair;
            const float2 scale = *reinterpret_cast<const float2*>(at);
#pragma unroll
            for (int m = 0; m < kDown; ++m)
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    float& all = sums[m][first + n][v];
                    all = fmaf(own[m][n][v], v % 2 ? scale.y : scale.x, all);
                }
        }
    }
}

// @AttendCopies deps: copy_async
// How a block brings parts of images, which lie in memory as they are wanted.
template <int kThreads>
OPWELD_FN void copy_image(unsigned int to, const unsigned char* from, int bytes) {
    for (int at = int(threadIdx.x) * 16; at < bytes; at += kThreads * 16)
        copy_async(to + at, from + at, 16);
}

// @AttendBlockMma deps: AttendBlock, AttendCopies, AttendTileMma, LargestScales, attend_powers, attend_products, attend_rows_cancellation, attend_values, shared_address
// A block, and its shared memory: the parts and scales of q, then the image of a tile, of which
// keys come while values are used and the other way round; at the end a tile of the result.
template <typename Problem>
struct AttendBlockMma : AttendBlock<AttendTileMma<Problem>> {
    using Tile = AttendTileMma<Problem>;
    using Base = AttendBlock<Tile>;
    using Base::kAcross, Base::kDown;
    unsigned char* memory;

    __device__ __forceinline__ float* query_scales() const {
        return reinterpret_cast<float*>(memory + Tile::kRows * Tile::kDepth * 4);
    }
    __device__ __forceinline__ unsigned char* image() const { return memory + Tile::kQueryBytes; }
    __device__ __forceinline__ unsigned char* columns() const { return image() + Tile::kKeyBytes; }
    __device__ __forceinline__ const float* key_scales() const {
        return reinterpret_cast<const float*>(image() + Tile::kKeys * Tile::kDepth * 4);
    }
    __device__ __forceinline__ const float* column_scales() const {
        return reinterpret_cast<const float*>(columns() + Tile::kKeys * Tile::kColumns * 4);
    }
    __device__ __forceinline__ void start_keys(int tile) const {
        if (tile < this->tiles())
            copy_image<Tile::kThreads>(shared_address(image()),
                                       this->images + int64_t(tile) * Tile::kImageBytes,
                                       Tile::kKeyBytes);
        commit_copies();
    }
    __device__ __forceinline__ void start_values(int tile) const {
        if (tile < this->tiles())
            copy_image<Tile::kThreads>(
                shared_address(columns()),
                this->images + int64_t(tile) * Tile::kImageBytes + Tile::kKeyBytes,
                Tile::kValueBytes);
        commit_copies();
    }

    // Rows times keys and values on the tensor cores, into the tile. Rows of which digits are
    // missing are to be made again.
    __device__ __forceinline__ void make() const {
        start_keys(0);
        start_values(0);
        const QueriesMma<Tile::kDepth, kDown, Problem::kHolds> queries(
            PartsTile<Tile::kDepth>{shared_address(memory)}, this->warp_row());
        const float* scales = query_scales() + this->warp_row() + int(threadIdx.x) % 32 / 4;
        AttendRows<kDown> rows;
        float sums[kDown][kAcross][4];
        LargestScales<Tile::kColumns, Tile::kThreads> largest;
        this->begin(rows, sums, scales);
#pragma unroll 1
        for (int tile = 0; tile < this->tiles(); ++tile) {
            float scores[kDown][Tile::kKeys / 8][4];
            await_copies<1>();
            __syncthreads();  // the keys are there
            attend_products<Tile>(scores, queries, shared_address(image()));
            this->turn_into_scores(scores, tile, scales, key_scales());
            __syncthreads();  // all have used the keys
            start_keys(tile + 1);
            AttendPowers<kDown, Tile::kKeys / 16> powers;
            float kept[kDown][2];
            attend_powers(powers, kept, rows, scores);
            this->multiply(sums, kept);
            await_copies<1>();
            __syncthreads();  // the values are there
            largest.take(column_scales());
            attend_values<Tile>(sums, powers, shared_address(columns()), column_scales());
            __syncthreads();  // all have used the values
            start_values(tile + 1);
        }
        await_copies<0>();
        largest.put(const_cast<float*>(column_scales()));
        __syncthreads();
        const bool cancelled = are_cancelled<Tile>(sums, column_scales());
        __syncthreads();  // the memory becomes the result's
        this->divide_and_lay_out(sums, rows, cancelled, reinterpret_cast<float*>(memory));
    }
};

// @attend_mma deps: AttendBlockMma, attend_bytes, block_of, dependents, launch_attend
template <typename Problem, typename Epilogue>
__global__ void __launch_bounds__(AttendTileMma<Problem>::kThreads, AttendTileMma<Problem>::kBlocks)
    attend_mma_kernel(const Problem problem, const AttendSizes sizes, const unsigned char* images,
                      const int* needs_fallback, const EpilogueStore<Epilogue> sink) {
    using Tile = AttendTileMma<Problem>;
    extern __shared__ __align__(128) unsigned char attend_memory[];
    __shared__ bool again[Tile::kRows];
    const AttendBlockMma<Problem> block{
        block_of<Tile>(problem, sizes, images, needs_fallback, again), attend_memory};
    auto* tile = reinterpret_cast<float*>(attend_memory);
    int own = block.split_queries(attend_memory, block.query_scales());
    griddepcontrol_wait();  // of what splits keys and values
    own |= block.find_fallbacks();
    if (__syncthreads_or(own)) {
        block.leave();
    } else {
        block.make();
    }
    __syncthreads();
    block.make_again(tile);
    __syncthreads();
    block.give(sink, tile);
}

template <typename Problem, typename Epilogue>
static int attend_mma(const Problem& problem, const AttendSizes& sizes, void* workspace,
                      const Epilogue& epilogue, bool narrow, bool aligned, void* stream) {
    return launch_attend<AttendTileMma<Problem>>(attend_mma_kernel<Problem, Epilogue>, problem,
                                                 sizes, workspace, epilogue, narrow, aligned,
                                                 stream);
}

}  // namespace op
