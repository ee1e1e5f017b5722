// Attention as one kernel that never writes a score: blocks of rows of q go over the keys and
// values, tile by tile, with the largest score, the sum of powers and the sums of values that each
// row has so far. Float32 faithful: see docs/5-numerics.md.

namespace op {

// @attend_rows_cancellation deps: Drowned
// Whether a warp's sums lack digits that count, beside the largest value of each column. It is
// asked of all warps, 16384 for 8192 rows of 32 heads, and the rows of one that chance chose would
// take longer than all the others.
template <typename Tile>
OPWELD_FN bool are_cancelled(const float (&sums)[Tile::kDown][Tile::kColumns / 8][4],
                             const float* largest) {
    Drowned<2> cancelled;
    const int pair = int(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int n = 0; n < Tile::kColumns / 8; ++n) {
        const float2 most = *reinterpret_cast<const float2*>(largest + 8 * n + pair);
#pragma unroll
        for (int m = 0; m < Tile::kDown; ++m)
#pragma unroll
            for (int v = 0; v < 4; ++v) cancelled.add(sums[m][n][v], v % 2 ? most.y : most.x);
    }
    return cancelled.are_many(cancelled.kMarginOfMany);
}

// @attend_quotient deps:
// sum / total to within half an ulp or little more, by the rounded inverse of the total
OPWELD_FN float quotient(float sum, float total, float inverse) {
    const float near = sum * inverse;
    return fmaf(fmaf(-near, total, sum), inverse, near);
}

// @LargestScales deps:
// The largest scale of each column among the tiles so far, shared out among kThreads threads.
template <int kColumns, int kThreads>
struct LargestScales {
    static constexpr int kOwn = (kColumns + kThreads - 1) / kThreads;
    float own[kOwn] = {};

    static __device__ __forceinline__ int column(int i) {
        return int(threadIdx.x) % kThreads + i * kThreads;
    }
    __device__ __forceinline__ void take(const float* scales) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
            if (column(i) < kColumns) own[i] = fmaxf(own[i], scales[column(i)]);
    }
    __device__ __forceinline__ void put(float* scales) const {
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
            if (column(i) < kColumns) scales[column(i)] = own[i];
    }
};

// @AttendBlock deps: AttendRows, AttendSizes, attend_limit, attend_plain, attend_quotient, attend_scores, give_tile, split_rows, store_vector
// One block's rows, and the result of them in shared memory.
template <typename Tile>
struct AttendBlock {
    using Problem = typename Tile::Problem;
    static constexpr int kDown = Tile::kDown, kAcross = Tile::kColumns / 8;
    const Problem& problem;
    const AttendSizes& sizes;
    int64_t batch, first;
    const unsigned char* images;  // of this batch
    const int* needs_fallback;    // two of each image
    bool* again;                  // of each row, whether the CUDA cores are to make it

    // its first row of the block
    __device__ __forceinline__ int warp_row() const { return int(threadIdx.x) / 32 * 16 * kDown; }
    // of keys that rows before `row` of the block see
    __device__ __forceinline__ int tiles(int row = Tile::kRows) const {
        return int(Tile::tiles(attend_limit<Problem>(sizes, first + row)));
    }

    // All rows are for the CUDA cores.
    __device__ __forceinline__ void leave() const {
        for (int row = int(threadIdx.x); row < Tile::kRows; row += Tile::kThreads)
            again[row] = true;
    }

    // Splits the warp's rows of q; whether they do not fit.
    __device__ __forceinline__ int split_queries(unsigned char* parts, float* scales) const {
        int own = 0;
        split_rows<typename Tile::Queries, Tile::kDepth, 16 * kDown>(
            parts, scales, warp_row(), problem.query_lines(batch), first + warp_row(),
            sizes.queries - first - warp_row(), Problem::kDepth, own);
        return own;
    }
    // Whether one of this thread's share of tiles does not fit.
    __device__ __forceinline__ int find_fallbacks() const {
        int own = 0;
        for (int i = int(threadIdx.x); i < 2 * tiles(); i += int(blockDim.x))
            own |= needs_fallback[i];
        return own;
    }

    static __device__ __forceinline__ void begin(AttendRows<kDown>& rows,
                                                 float (&sums)[kDown][kAcross][4],
                                                 const float* scales) {
        constexpr float kLog2E = 1.4426950408889634f;
#pragma unroll
        for (int m = 0; m < kDown; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                rows.top[m][half] = -3.402823466e38f, rows.total[m][half] = 0.0f;
                rows.factor[m][half] = Problem::kPlain
                                           ? scales[16 * m + 8 * half] * (Problem::kFactor * kLog2E)
                                           : kLog2E;
            }
#pragma unroll
            for (int n = 0; n < kAcross; ++n)
#pragma unroll
                for (int v = 0; v < 4; ++v) sums[m][n][v] = 0.0f;
        }
    }

    __device__ __forceinline__ void turn_into_scores(float (&scores)[kDown][Tile::kKeys / 8][4],
                                                     int tile, const float* scales,
                                                     const float* key_scales) const {
        const AttendPlace place{batch, first + warp_row() + int(threadIdx.x) % 32 / 4,
                                int64_t(tile) * Tile::kKeys};
        const int64_t end = place.key + Tile::kKeys;
        const bool edge = end > sizes.keys || (Problem::kCausal && end > first + warp_row() + 1);
        // The same in all lanes, of which the compiler makes more where it knows.
        if (__any_sync(~0u, edge)) {
            attend_scores<true, Tile>(scores, problem, sizes, place, key_scales, scales);
        } else {
            attend_scores<false, Tile>(scores, problem, sizes, place, key_scales, scales);
        }
    }

    static __device__ __forceinline__ void multiply(float (&sums)[kDown][kAcross][4],
                                                    const float (&kept)[kDown][2]) {
        bool changes = false;
#pragma unroll
        for (int m = 0; m < kDown; ++m) changes |= kept[m][0] != 1.0f || kept[m][1] != 1.0f;
        if (!__any_sync(~0u, changes)) return;
#pragma unroll
        for (int m = 0; m < kDown; ++m)
#pragma unroll
            for (int n = 0; n < kAcross; ++n)
#pragma unroll
                for (int v = 0; v < 4; ++v) sums[m][n][v] *= kept[m][v / 2];
    }

    __device__ __forceinline__ void divide_and_lay_out(const float (&sums)[kDown][kAcross][4],
                                                       const AttendRows<kDown>& rows,
                                                       bool cancelled, float* tile) const {
        const int row = warp_row() + int(threadIdx.x) % 32 / 4, pair = int(threadIdx.x) % 4 * 2;
#pragma unroll
        for (int m = 0; m < kDown; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float total = rows.total[m][half];
                total += __shfl_xor_sync(~0u, total, 1);
                total += __shfl_xor_sync(~0u, total, 2);
                // Where one key has all of the weight, the result is its value to the last digit.
                const bool alone = total > 0.0f && total < 0x1p15f * (1.0f + 0x1p-18f);
                again[row + 16 * m + 8 * half] = cancelled || alone;
                if (total == 0.0f && (Problem::kZeros || sizes.keys == 0)) total = 1.0f;
                const float inverse = 1.0f / total;
                float* to = tile + (row + 16 * m + 8 * half) * Tile::kPitch + pair;
#pragma unroll
                for (int n = 0; n < kAcross; ++n) {
                    const float* own_sums = &sums[m][n][2 * half];
                    const Vector<float, 2> own = {quotient(own_sums[0], total, inverse),
                                                  quotient(own_sums[1], total, inverse)};
                    store_vector(to + 8 * n, own);
                }
            }
    }

    // Rows that are wanted again by the CUDA cores.
    __device__ __forceinline__ void make_again(float* tile) const {
        attend_plain<Tile>(problem, sizes, batch, first, again, tile);
    }
    template <typename Epilogue>
    __device__ __forceinline__ void give(const EpilogueStore<Epilogue>& sink,
                                         const float* tile) const {
        const int64_t rows =
            sizes.queries - first < Tile::kRows ? sizes.queries - first : Tile::kRows;
        give_tile<Tile::kThreads, Tile::kColumns, Tile::kPitch>(
            sink, 0, tile, rows, Problem::kColumns, problem.place_of(batch) + first * sizes.row,
            sizes.row);
    }
};

// @block_of deps: AttendBlock
// What block blockIdx.x makes. The last rows come first: where they see more keys than others, the
// others fill the gaps.
template <typename Tile>
OPWELD_FN AttendBlock<Tile> block_of(const typename Tile::Problem& problem,
                                     const AttendSizes& sizes, const unsigned char* images,
                                     const int* needs_fallback, bool* again) {
    const int64_t blocks = (sizes.queries + Tile::kRows - 1) / Tile::kRows;
    const int64_t batch = blockIdx.x / blocks;
    const int64_t first = (blocks - 1 - blockIdx.x % blocks) * Tile::kRows;
    const int64_t image = problem.shared_of(batch) * Tile::tiles(sizes.keys);
    return {problem,
            sizes,
            batch,
            first,
            images + image * Tile::kImageBytes,
            needs_fallback + 2 * image,
            again};
}

// @attend_bytes deps: AttendSizes
// The workspace of one call: the images, and whether the keys and the values of each do not fit.
template <typename Tile>
static int64_t attend_bytes(const AttendSizes& sizes) {
    return sizes.shared * Tile::tiles(sizes.keys) * (Tile::kImageBytes + 2 * int64_t(sizeof(int)));
}

// @launch_attend deps: AttendSizes, Launch, EpilogueStore, attend_split_kernel, starts_early
// Splits keys and values, and runs the kernel of a family that takes them. Hands the values of out,
// float32, to `epilogue(at, values)`, with `at` the flat position of the first of one or two
// neighbours. Returns a CUDA error code.
template <typename Tile, typename Kernel, typename Epilogue>
static int launch_attend(Kernel kernel, const typename Tile::Problem& problem,
                         const AttendSizes& sizes, void* workspace, const Epilogue& epilogue,
                         bool narrow, bool aligned, void* stream) {
    const auto queue = static_cast<cudaStream_t>(stream);
    const int64_t images = sizes.shared * Tile::tiles(sizes.keys);
    auto* bytes = static_cast<unsigned char*>(workspace);
    auto* needs_fallback = reinterpret_cast<int*>(bytes + images * Tile::kImageBytes);
    if (images > 0) {
        const int error =
            Launch(2 * images, Tile::kSplitThreads, 0, queue)
                .run(attend_split_kernel<Tile>, problem, sizes, bytes, needs_fallback);
        if (error) return error;
    }
    const auto sink = EpilogueStore<Epilogue>::of(epilogue, narrow, aligned, 0);
    const int64_t blocks = (sizes.queries + Tile::kRows - 1) / Tile::kRows * sizes.batches;
    Launch launch(blocks, Tile::kBlockThreads, Tile::kBytes, queue);
    // It splits its rows of q while images are made. Behind any other kernel these may not be there
    // yet.
    if (images > 0 && starts_early()) launch.start_early();
    return launch.run(kernel, problem, sizes, bytes, needs_fallback, sink);
}

}  // namespace op
