// Attention as one kernel that never writes a score: blocks of rows of q go over the keys and values,
// tile by tile, with the largest score, the sum of powers and the sums of values that each row has so
// far. Float32 faithful: see docs/5-numerics.md.

namespace op {

// @AttendCopies deps: AttendTile, copy_async
// How a block brings parts of images, which lie in memory as they are wanted.
template <int kThreads>
OPWELD_FN void copy_image(unsigned int to, const unsigned char* from, int bytes) {
    for (int at = int(threadIdx.x) * 16; at < bytes; at += kThreads * 16)
        copy_async(to + at, from + at, 16);
}

// @attend_rows_drowned deps: AttendTile, Drowned
// Whether a warp's sums lack digits that count, beside the largest value of each column.
template <typename Tile>
OPWELD_FN bool are_drowned(const float (&sums)[Tile::kDown][Tile::kColumns / 8][4],
                           const float* largest) {
    Drowned<2> drowned;
    const int pair = int(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int n = 0; n < Tile::kColumns / 8; ++n) {
        const float2 most = *reinterpret_cast<const float2*>(largest + 8 * n + pair);
#pragma unroll
        for (int m = 0; m < Tile::kDown; ++m)
#pragma unroll
            for (int v = 0; v < 4; ++v) drowned.add(sums[m][n][v], v % 2 ? most.y : most.x);
    }
    return drowned.are_many();
}

// @attend_quotient deps:
// sum / total to within half an ulp or little more, by the rounded inverse of the total
OPWELD_FN float quotient(float sum, float total, float inverse) {
    const float near = sum * inverse;
    return fmaf(fmaf(-near, total, sum), inverse, near);
}

// @LargestScales deps:
// The largest scale of each column among the tiles so far, shared out among the threads of a block.
template <int kColumns, int kThreads>
struct LargestScales {
    float own[(kColumns + kThreads - 1) / kThreads] = {};

    __device__ __forceinline__ void take(const float* scales) {
        for (int i = 0, d = int(threadIdx.x); d < kColumns; ++i, d += kThreads)
            own[i] = fmaxf(own[i], scales[d]);
    }
    __device__ __forceinline__ void put(float* scales) const {
        for (int i = 0, d = int(threadIdx.x); d < kColumns; ++i, d += kThreads) scales[d] = own[i];
    }
};

// @AttendBlock deps: AttendCopies, AttendRows, LargestScales, attend_limit, attend_powers, attend_products, attend_quotient, attend_rows_drowned, attend_scores, attend_values, dependents, shared_address, split_rows, store_vector
// One block's rows, and its shared memory: the parts and scales of q, then the image of a tile, of which
// keys come while values are used and the other way round; at the end a tile of the result.
template <typename Problem>
struct AttendBlock {
    using Tile = AttendTile<Problem>;
    static constexpr int kDown = Tile::kDown, kAcross = Tile::kColumns / 8;
    const Problem& problem;
    const AttendSizes& sizes;
    int64_t batch, first;
    const unsigned char* images;  // of this batch
    const int* unfit;
    unsigned char* memory;
    bool* again;  // of each row, whether the CUDA cores are to make it

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
    // its first row of the block
    __device__ __forceinline__ int warp_row() const {
        return int(threadIdx.x) / 32 * 16 * kDown;
    }
    __device__ __forceinline__ int tiles() const {
        return int(Tile::tiles(attend_limit<Problem>(sizes, first + Tile::kRows)));
    }
    __device__ __forceinline__ void start_keys(int tile) const {
        if (tile < tiles())
            copy_image<Tile::kThreads>(shared_address(image()),
                                       images + int64_t(tile) * Tile::kImageBytes, Tile::kKeyBytes);
        commit_copies();
    }
    __device__ __forceinline__ void start_values(int tile) const {
        if (tile < tiles())
            copy_image<Tile::kThreads>(shared_address(columns()),
                                       images + int64_t(tile) * Tile::kImageBytes + Tile::kKeyBytes,
                                       Tile::kValueBytes);
        commit_copies();
    }

    // All rows are for the CUDA cores.
    __device__ __forceinline__ void leave() const {
        for (int row = int(threadIdx.x); row < Tile::kRows; row += Tile::kThreads) again[row] = true;
    }

    // Splits the rows of q; whether they, or a tile of keys and values, are unfit.
    __device__ __forceinline__ bool split_queries() const {
        const AttendLines lines = problem.query_lines(batch);
        int own = 0;
        split_rows<Tile::kDepth, 16 * kDown>(memory, query_scales(), warp_row(), lines,
                                             first + warp_row(), sizes.queries - first - warp_row(),
                                             Problem::kDepth, own);
        wait_for_results();  // of what splits keys and values
        for (int tile = int(threadIdx.x); tile < tiles(); tile += Tile::kThreads) own |= unfit[tile];
        return __syncthreads_or(own);
    }

    // Rows times keys and values on the tensor cores, into the tile. Rows of which digits are missing
    // are to be made again.
    __device__ __forceinline__ void make() const {
        constexpr float kLog2E = 1.4426950408889634f;
        start_keys(0);
        start_values(0);
        const HeldParts<Tile::kDepth, kDown, Tile::kHolds> queries(
            PartsTile<Tile::kDepth>{shared_address(memory)}, warp_row());
        const float* scales = query_scales() + warp_row() + int(threadIdx.x) % 32 / 4;
        AttendRows<kDown> rows;
        float sums[kDown][kAcross][4];
        LargestScales<Tile::kColumns, Tile::kThreads> largest;
#pragma unroll
        for (int m = 0; m < kDown; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                rows.top[m][half] = -3.402823466e38f, rows.total[m][half] = 0.0f;
                rows.factor[m][half] =
                    Problem::kPlain ? scales[16 * m + 8 * half] * (Problem::kFactor * kLog2E) : kLog2E;
            }
#pragma unroll
            for (int n = 0; n < kAcross; ++n)
#pragma unroll
                for (int v = 0; v < 4; ++v) sums[m][n][v] = 0.0f;
        }
#pragma unroll 1
        for (int tile = 0; tile < tiles(); ++tile) {
            float scores[kDown][Tile::kKeys / 8][4];
            await_copies<1>();
            __syncthreads();  // the keys are there
            attend_products<Tile>(scores, queries, shared_address(image()));
            turn_into_scores(scores, tile, scales);
            __syncthreads();  // all have used the keys
            start_keys(tile + 1);
            AttendPowers<kDown, Tile::kKeys / 16> powers;
            float kept[kDown][2];
            attend_powers(powers, kept, rows, scores);
            multiply(sums, kept);
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
        const bool drowned = are_drowned<Tile>(sums, column_scales());
        __syncthreads();  // the memory becomes the result's
        divide_and_lay_out(sums, rows, drowned);
    }

    __device__ __forceinline__ void turn_into_scores(
        float (&scores)[kDown][Tile::kKeys / 8][4], int tile, const float* scales) const {
        const AttendPlace place{batch, first + warp_row() + int(threadIdx.x) % 32 / 4,
                                int64_t(tile) * Tile::kKeys};
        const int64_t end = place.key + Tile::kKeys;
        const bool edge =
            end > sizes.keys || (Problem::kCausal && end > first + warp_row() + 1);
        if (edge) {
            attend_scores<true>(scores, problem, sizes, place, key_scales(), scales);
        } else {
            attend_scores<false>(scores, problem, sizes, place, key_scales(), scales);
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
                                                       bool drowned) const {
        auto* tile = reinterpret_cast<float*>(memory);
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
                again[row + 16 * m + 8 * half] = drowned || alone;
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
};

// @attend_kernel deps: AttendBlock, attend_plain, give_tile
// The last rows come first: where they see more keys than others, the others fill the gaps.
template <typename Problem, typename Epilogue>
__global__ void __launch_bounds__(AttendTile<Problem>::kThreads, AttendTile<Problem>::kBlocks)
    attend_kernel(const Problem problem, const AttendSizes sizes, const unsigned char* images,
                  const int* unfit, const Sink<Epilogue> sink) {
    using Tile = AttendTile<Problem>;
    extern __shared__ __align__(128) unsigned char attend_memory[];
    const int64_t blocks = (sizes.queries + Tile::kRows - 1) / Tile::kRows;
    const int64_t batch = blockIdx.x / blocks, tiles = Tile::tiles(sizes.keys);
    const int64_t first = (blocks - 1 - blockIdx.x % blocks) * Tile::kRows;
    const int64_t image = problem.shared_of(batch) * tiles;
    __shared__ bool again[Tile::kRows];
    const AttendBlock<Problem> block{problem,
                                     sizes,
                                     batch,
                                     first,
                                     images + image * Tile::kImageBytes,
                                     unfit + image,
                                     attend_memory,
                                     again};
    auto* tile = reinterpret_cast<float*>(attend_memory);
    if (block.split_queries()) {
        block.leave();
    } else {
        block.make();
    }
    __syncthreads();
    attend_plain(problem, sizes, batch, first, again, tile);
    __syncthreads();
    const int64_t rows = sizes.queries - first < Tile::kRows ? sizes.queries - first : Tile::kRows;
    give_tile<Tile::kThreads, Tile::kColumns, Tile::kPitch>(
        sink, 0, tile, rows, Problem::kColumns, problem.place_of(batch) + first * sizes.row, sizes.row);
}

// @attend_bytes deps: AttendTile, AttendSizes
// The workspace of one call: the images, and of each whether it is unfit.
template <typename Problem>
static int64_t attend_bytes(const AttendSizes& sizes) {
    using Tile = AttendTile<Problem>;
    return sizes.shared * Tile::tiles(sizes.keys) * (Tile::kImageBytes + int64_t(sizeof(int)));
}

// @starts_early deps:
// Whether the current device can start a kernel before the one ahead of it has ended: from sm_90 on.
[[maybe_unused]] static bool starts_early() {
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major >= 9;
}

// @attend deps: attend_bytes, attend_kernel, attend_split_kernel, starts_early
// Hands the values of out, float32, to `epilogue(at, values)`, with `at` the flat position of the first of
// one or two neighbours. Returns a CUDA error code.
template <typename Problem, typename Epilogue>
static int attend(const Problem& problem, const AttendSizes& sizes, void* workspace,
                  const Epilogue& epilogue, bool narrow, bool aligned, void* stream) {
    using Tile = AttendTile<Problem>;
    const auto queue = static_cast<cudaStream_t>(stream);
    const int64_t images = sizes.shared * Tile::tiles(sizes.keys);
    auto* bytes = static_cast<unsigned char*>(workspace);
    auto* unfit = reinterpret_cast<int*>(bytes + images * Tile::kImageBytes);
    if (images > 0) {
        attend_split_kernel<<<(unsigned int)images, Tile::kThreads, 0, queue>>>(problem, sizes,
                                                                                bytes, unfit);
        const int error = int(cudaGetLastError());
        if (error) return error;
    }
    const auto kernel = attend_kernel<Problem, Epilogue>;
    const int error = int(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               Tile::kBytes));
    if (error) return error;
    const auto sink = Sink<Epilogue>::of(epilogue, narrow, aligned, 0);
    const int64_t blocks = (sizes.queries + Tile::kRows - 1) / Tile::kRows * sizes.batches;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3((unsigned int)blocks);
    config.blockDim = dim3(Tile::kThreads);
    config.dynamicSmemBytes = Tile::kBytes;
    config.stream = queue;
    config.attrs = &attribute;
    // It splits its rows of q while images are made. Behind any other kernel these may not be there yet.
    config.numAttrs = images > 0 && starts_early() ? 1 : 0;
    return int(cudaLaunchKernelEx(&config, kernel, problem, sizes,
                                  static_cast<const unsigned char*>(bytes),
                                  static_cast<const int*>(unfit), sink));
}

}  // namespace op
