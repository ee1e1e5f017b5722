// Products of float32 with up to 16 rows on one side, on the tensor cores at the speed of memory:
// float32 values become three bfloat16 ones, so that no scales are needed; of nine products of
// parts the three smallest, below 2^-24 of the whole, are left out. A block keeps the parts of its
// slice of `few`, up to 1024 k of it, in shared memory, and its warps go through the rows of
// `many`, each with a ring of stages of its own. So `few` is read once a block, and no warp waits
// for another.
//
// 16x8192 by 8192x8192 takes 88 us where the matrix lies along k and 86 where it lies across, the
// combining of the slices (4 us) included (H200, 2026-11-23): a copy of as much takes 64, and one
// row 75. Rings of a whole block that bring `few` with every stage took 92 and 104: its rows were a
// quarter of what passed from the L2 cache to the multiprocessors. A kernel by hand for these sizes
// alone, without a look at the values' sizes, takes 82 and 80; there sixteen warps with two stages
// beat eight with four by 6 us.

namespace op {

// @ThreeParts deps: bfloat16, bfloat16_is
// Four values as three parts, two at a time as operands of the tensor cores.
struct ThreeParts {
    unsigned int part[3][2];  // upper, middle, lower

    OPWELD_FN unsigned int rounded(float& a, float& b) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
        const float2 wide = __bfloat1622float2(pair);
        a -= wide.x, b -= wide.y;
        unsigned int word;
        memcpy(&word, &pair, 4);
        return word;
    }
    __device__ __forceinline__ ThreeParts(float a, float b, float c, float d) {
#pragma unroll
        for (int i = 0; i < 3; ++i) part[i][0] = rounded(a, b), part[i][1] = rounded(c, d);
    }
};

// @Slice deps: Skinny
// What a block has in shared memory: the warps' stages, then the parts of `few` as
// [part][step][row] [16 k] in bfloat16, then of each row of it all bits.
struct Slice {
    static constexpr int kFew = Skinny::kMostFew, kMostDepth = 1024, kLeastDepth = 128;
    static constexpr int kWarps = kFew;  // each makes the parts of one row of `few`
    static constexpr int kThreads = 32 * kWarps, kStages = 2, kStage = 1024;  // floats
    static constexpr int kRing = kWarps * kStages * kStage;
    static constexpr int kOfStep = kFew * 32;  // bytes

    static int bytes(int64_t depth) { return kRing * 4 + 3 * int(depth / 16) * kOfStep + kFew * 4; }
    // The most k of a slice on the current device, in whole steps of both layouts; 0: none fits.
    static int64_t most_depth() {
        int device = 0, room = 0;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        const int64_t fitting = (room - bytes(0)) / (3 * kOfStep / 16) / 64 * 64;
        return fitting < kLeastDepth ? 0 : fitting < kMostDepth ? fitting : kMostDepth;
    }
    // Where four k of a row stand. Rows change places from step to step, so that what lanes store
    // at once does not collide.
    OPWELD_FN int place(int step, int row, int chunk) {
        return step * kOfStep + (row ^ (step & 7)) * 32 + chunk * 8;
    }
};

// @SliceDots deps: Slice, ThreeParts, copy_async, load_vector, mma_16x8x16, shared_address
// A warp makes kMany x 16 dot products: `many` is the operand of 16 rows. Four lanes share a row,
// and take four neighbours in k each: both operands' k may be dealt to the instruction's in any
// order that is the same. Where rows lie across k a lane takes four neighbouring rows.
template <bool kIsAcross>
struct SliceDots {
    static constexpr bool kAcross = kIsAcross;
    static constexpr int kMany = kAcross ? 32 : 16, kDepth = Slice::kStage / kMany;
    static constexpr int kTiles = kMany / 16, kOwn = 2 * kTiles;  // rows of a lane
    static constexpr int kSteps = kAcross ? 1 : 2;                // of 16 k at once
    static constexpr int kPitch = Slice::kFew + 1;                // of sums in a stage
    float sums[kTiles][2][4];
    uint32_t bits[kOwn];  // of all values of a row that this lane had

    // The row of a tile that is row `i` of a lane's.
    OPWELD_FN int row_of(int i) {
        const int own = int(threadIdx.x) % 32 / 4;
        return kAcross ? own * 4 + i : own + 8 * i;
    }
    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int i = 0; i < kTiles * 8; ++i) sums[i / 8][i / 4 % 2][i % 4] = 0.0f;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) bits[i] = 0;
    }
    // Which 16 bytes of a row of a stage lie in place of which, as an exclusive or.
    OPWELD_FN int turn(int row) { return kAcross ? row / 4 % 4 * 2 : row % 2 * 4; }
    // Copies kDepth k of the rows of a tile; `rows` and `depth` k exist, and others become zeros. A
    // stage's own rows are those of memory: across they have one k each. `to` is a multiple of 128.
    OPWELD_FN void bring(unsigned int to, const float* from, int64_t stride, int rows, int depth) {
        constexpr int kAlong = (kAcross ? kMany : kDepth) / 4, kAtOnce = 32 / kAlong;
        const int lane = int(threadIdx.x) % 32, row = lane / kAlong, column = lane % kAlong;
        from += row * stride + column * 4;
        to += (row * kAlong + (column ^ (kAcross ? 0 : turn(row)))) * 16;
        const bool whole = rows >= kMany && depth >= kDepth;
        const int down = kAcross ? depth : rows, across = kAcross ? rows : depth;
        const int below = column * 4 < across ? down - row : 0;
#pragma unroll
        for (int i = 0; i < Slice::kStage / 128; ++i, from += kAtOnce * stride) {
            const unsigned int at = (to + i * 512) ^ (kAcross ? turn(i * kAtOnce) * 16 : 0);
            copy_async(at, from, whole || i * kAtOnce < below ? 16 : 0);
        }
    }
    // Four neighbours in k of each row that a lane has.
    OPWELD_FN void take(float (&taken)[kOwn][4], const float* stage, int step) {
        const int lane = int(threadIdx.x) % 32, own = lane / 4, chunk = step * 4 + lane % 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (kAcross) {
                const int k = chunk * 4 + i;
                const auto four = load_vector<4>(stage + k * kMany + (own ^ turn(k)) * 4);
#pragma unroll
                for (int j = 0; j < 4; ++j) taken[j % kOwn][i] = four.lane[j];
            } else if (i < kOwn) {
                const int row = row_of(i);
                const auto four = load_vector<4>(stage + row * kDepth + (chunk ^ turn(row)) * 4);
#pragma unroll
                for (int j = 0; j < 4; ++j) taken[i][j] = four.lane[j];
            }
        }
    }
    // `first`: the stage's first step in the slice; `of_part`: bytes of a part of it.
    __device__ __forceinline__ void add(const float* stage, const char* few, int first,
                                        int of_part) {
        // by their size: the small products first, while nothing of them is cut off
        constexpr int kA[6] = {2, 0, 1, 1, 0, 0}, kB[6] = {0, 2, 1, 0, 1, 0};
        const int lane = int(threadIdx.x) % 32;
#pragma unroll(kAcross ? 1 \
                       : kDepth / 16)  // what two steps hold at once would not fit the registers
        for (int step = 0; step < kDepth / 16; step += kSteps) {
            unsigned int a[kSteps][kTiles][3][4], b[kSteps][2][3][2];
            float own[kSteps][kTiles][2][4] = {};
#pragma unroll
            for (int s = 0; s < kSteps; ++s) {
                float taken[kOwn][4];
                take(taken, stage, step + s);
#pragma unroll
                for (int i = 0; i < kOwn; ++i) {
                    const auto& four = taken[i];
#pragma unroll
                    for (int j = 0; j < 4; ++j) bits[i] |= __float_as_uint(four[j]);
                    const ThreeParts made(four[0], four[1], four[2], four[3]);
#pragma unroll
                    for (int j = 0; j < 6; ++j)
                        a[s][i / 2][j / 2][i % 2 + j % 2 * 2] = made.part[j / 2][j % 2];
                }
                const char* from = few + Slice::place(first + step + s, lane / 4, lane % 4);
#pragma unroll
                for (int i = 0; i < 6; ++i) {
                    const auto words =
                        *reinterpret_cast<const uint2*>(from + i / 2 * of_part + i % 2 * 256);
                    b[s][i % 2][i / 2][0] = words.x, b[s][i % 2][i / 2][1] = words.y;
                }
            }
#pragma unroll
            for (int i = 0; i < 6; ++i)
#pragma unroll
                for (int j = 0; j < kSteps * kTiles * 2; ++j) {
                    const int s = j / (kTiles * 2), tile = j / 2 % kTiles;
                    mma_16x8x16<bfloat16>(own[s][tile][j % 2], a[s][tile][kA[i]],
                                          b[s][j % 2][kB[i]]);
                }
#pragma unroll
            for (int j = 0; j < kSteps * kTiles * 8; ++j)
                sums[j / 8 % kTiles][j / 4 % 2][j % 4] +=
                    own[j / 8 / kTiles][j / 8 % kTiles][j / 4 % 2][j % 4];
        }
    }
    // Sum r * kPitch + f is that of row r and row f of `few`; NaN asks for another way.
    __device__ __forceinline__ void keep(float* totals) {
        const int lane = int(threadIdx.x) % 32;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            uint32_t all = bits[i];
            all |= __shfl_xor_sync(~0u, all, 1);
            all |= __shfl_xor_sync(~0u, all, 2);
            const bool tiny = lacks_digits(all);
#pragma unroll
            for (int j = 0; j < 4; ++j)
                totals[row_of(i) * kPitch + lane % 4 * 2 + j % 2 + j / 2 * 8] =
                    tiny ? __uint_as_float(0x7FFFFFFFu) : sums[i / 2][j / 2][i % 2 * 2 + j % 2];
        }
    }
    // Whether values of these bits are so small, below 2^-111, that parts of them are lost.
    OPWELD_FN bool lacks_digits(uint32_t all) {
        constexpr uint32_t kLargeBits = 0x78000000u;
        return (all & 0x7FFFFFFFu) != 0 && (all & kLargeBits) == 0;
    }
};

// @prepare_slice deps: Slice, ThreeParts
// The parts of begin <= k < end of `few`, and zeros up to `depth` k; a warp has a row.
OPWELD_FN void prepare_slice(const Skinny& p, int64_t batch, int64_t begin, int64_t end, int depth,
                             char* parts, uint32_t* bits) {
    const int row = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const int of_part = depth / 16 * Slice::kOfStep;
    const float* from =
        static_cast<const float*>(p.few.data) + batch * p.few.batch + row * p.few.row + begin;
    constexpr int kLoads = Slice::kMostDepth / 128;
    Vector<float, 4> loaded[kLoads] = {};
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {  // all at once: each takes the whole latency of memory
        const int i = lane + 32 * j;
        if (row < p.few_rows && begin + i * 4 < end) loaded[j] = load_vector<4>(from + i * 4);
    }
    uint32_t all = 0;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
        const int i = lane + 32 * j;
        if (i >= depth / 4) break;
        const auto& four = loaded[j];
#pragma unroll
        for (int v = 0; v < 4; ++v) all |= __float_as_uint(four.lane[v]);
        const ThreeParts made(four.lane[0], four.lane[1], four.lane[2], four.lane[3]);
        char* to = parts + Slice::place(i / 4, row, i % 4);
#pragma unroll
        for (int part = 0; part < 3; ++part)
            *reinterpret_cast<uint2*>(to + part * of_part) =
                make_uint2(made.part[part][0], made.part[part][1]);
    }
#pragma unroll
    for (int step = 16; step; step /= 2) all |= __shfl_xor_sync(~0u, all, step);
    if (lane == 0) bits[row] = all;
}

// @slice_plan deps: SkinnyPlan, SliceDots, num_multiprocessors
// How a product is cut into slices of at most `most` k: that no warp has much more to do than
// others. Of a slice there are plan.parts blocks.
template <typename Dots>
static SkinnyPlan slice_plan(const Skinny& p, int64_t most) {
    constexpr int64_t kTries = 32, kTileCost = 64, kSliceCost = 8;  // in k
    const int64_t slots = num_multiprocessors();
    const int64_t tiles = (p.many_rows + Dots::kMany - 1) / Dots::kMany;
    const int64_t least = (p.k + most - 1) / most;
    SkinnyPlan best{1, 1, 64};
    int64_t best_time = -1;
    for (int64_t wanted = least > 0 ? least : 1; wanted < least + kTries; ++wanted) {
        const int64_t k_each = ((p.k + wanted - 1) / wanted + 63) / 64 * 64;
        if (wanted > least && k_each < Slice::kLeastDepth) break;
        const int64_t splits = k_each > 0 ? (p.k + k_each - 1) / k_each : 1;
        const int64_t slices = p.batches * splits, fitting = slots / (slices > 0 ? slices : 1);
        const int64_t groups = fitting > 0 ? fitting : 1;
        const int64_t rounds = (tiles + groups * Slice::kWarps - 1) / (groups * Slice::kWarps);
        const int64_t waves = (slices * groups + slots - 1) / slots;
        const int64_t time = waves * rounds * (k_each + kTileCost) + splits * kSliceCost;
        if (best_time >= 0 && time >= best_time) continue;
        best = {int(groups), int(splits), k_each > 0 ? k_each : 64}, best_time = time;
    }
    return best;
}

// @chain_of_fmas deps: Skinny
// Row `f` of few times row `r` of many over begin <= k < end, stretch by stretch: for sums that are
// not finite, or are to be made again.
[[maybe_unused]] OPWELD_FN float chain_of_fmas(const Skinny& p, int64_t batch, int64_t f, int64_t r,
                                               int64_t begin, int64_t end) {
    constexpr int64_t kStretch = 64;
    const auto* few = static_cast<const float*>(p.few.data) + batch * p.few.batch + f * p.few.row;
    const auto* many =
        static_cast<const float*>(p.many.data) + batch * p.many.batch + r * p.many.row;
    float all = 0.0f;
    while (begin < end) {
        const int64_t stop = begin + kStretch < end ? begin + kStretch : end;
        float some = 0.0f;
#pragma unroll 1
        for (; begin < stop; ++begin)
            some = fmaf(many[begin * p.many.inner], few[begin * p.few.inner], some);
        all += some;
    }
    return all;
}

// @SliceRows deps: FewRows, EpilogueStore, SliceDots, chain_of_fmas, exponents, prepare_slice, reads_fours, slice_plan
template <typename Dots, typename Epilogue>
__global__ void __launch_bounds__(Slice::kThreads, 1)
    row_slices_kernel(Skinny p, SkinnyPlan plan, EpilogueStore<Epilogue> sink) {
    extern __shared__ __align__(128) float slice_memory[];
    char* const parts = reinterpret_cast<char*>(slice_memory + Slice::kRing);
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const int depth = int(plan.k_each), of_part = depth / 16 * Slice::kOfStep;
    auto* const few_bits = reinterpret_cast<uint32_t*>(parts + 3 * of_part);
    float* const ring = slice_memory + warp * Slice::kStages * Slice::kStage;
    const int split = blockIdx.x % plan.splits, above = blockIdx.x / plan.splits;
    const int batch = above % int(p.batches), group = above / int(p.batches);
    const int64_t begin = int64_t(split) * plan.k_each, next = begin + plan.k_each;
    const int64_t end = next < p.k ? next : p.k;
    const int length = int(end - begin), step = plan.parts * Slice::kWarps;
    const int tiles = int((p.many_rows + Dots::kMany - 1) / Dots::kMany);
    int feed_tile = group * Slice::kWarps + warp, feed_k = 0;
    const auto bring = [&](int slot) {
        if (feed_tile < tiles) {
            const int64_t row = int64_t(feed_tile) * Dots::kMany, k = begin + feed_k;
            const auto* many = static_cast<const float*>(p.many.data) + batch * p.many.batch;
            const int64_t stride = Dots::kAcross ? p.many.inner : p.many.row,
                          left = p.many_rows - row;
            many += Dots::kAcross ? row + k * stride : row * stride + k;
            Dots::bring(shared_address(ring + slot * Slice::kStage), many, stride,
                        left < Dots::kMany ? int(left) : Dots::kMany, length - feed_k);
            feed_k += Dots::kDepth;
            if (feed_k >= length) feed_k = 0, feed_tile += step;
        }
        commit_copies();
    };
    int slot = 0;
    bring(slot);
    prepare_slice(p, batch, begin, end, depth, parts, few_bits);
    __syncthreads();
    for (int tile = group * Slice::kWarps + warp; tile < tiles; tile += step) {
        Dots dots;
        dots.begin();
#pragma unroll 1
        for (int k = 0; k < length; k += Dots::kDepth) {
            await_copies<0>();
            __syncwarp();  // the stage is there for all lanes, and all have read the one before it
            bring(slot ^ 1);
            dots.add(ring + slot * Slice::kStage, parts, k / 16, of_part);
            slot ^= 1;
        }
        // Nothing is brought to the stage that was read last before all lanes are done with it.
        float* const totals = ring + (slot ^ 1) * Slice::kStage;
        __syncwarp();
        dots.keep(totals);
        __syncwarp();
#pragma unroll 1
        for (int i = lane; i < Dots::kMany * Slice::kFew; i += 32) {
            const int f = i / Dots::kMany, in_tile = i % Dots::kMany;
            const int64_t row = int64_t(tile) * Dots::kMany + in_tile;
            if (f >= p.few_rows || row >= p.many_rows) continue;
            float total[1] = {totals[in_tile * Dots::kPitch + f]};
            if (exponent_of(total[0]) == 128 || Dots::lacks_digits(few_bits[f]))
                total[0] = chain_of_fmas(p, batch, f, row, begin, end);
            sink.take(split, batch * p.batch_step + f * p.few_step + row * p.many_step, total);
        }
        __syncwarp();
    }
    await_copies<0>();
}
template <typename Dots, typename Epilogue>
static int launch_row_slices(const Skinny& p, const SkinnyPlan& plan,
                             const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
    const auto kernel = row_slices_kernel<Dots, Epilogue>;
    const int bytes = Slice::bytes(plan.k_each);
    const int error =
        int(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    if (error) return error;
    const int64_t blocks = p.batches * plan.splits * plan.parts;
    kernel<<<(unsigned int)blocks, Slice::kThreads, bytes, stream>>>(p, plan, sink);
    return int(cudaGetLastError());
}
// Up to 16 rows, all read in vectors, beside rows that lie along or across k: along, enough of
// these to have a tile for each warp of a block.
template <bool kAcross>
struct SliceRows {
    using Dots = SliceDots<kAcross>;
    static bool takes(const Skinny& p) {
        const Operand& many = p.many;
        const int64_t along = kAcross ? many.row : many.inner;
        const bool packed =
            reads_fours(p.few, p.few.inner, p.few.row, p.k) &&
            reads_fours(many, along, kAcross ? many.inner : many.row, kAcross ? p.many_rows : p.k);
        const bool enough =
            kAcross || (p.k >= Skinny::kLeastAlong && p.many_rows >= Slice::kWarps * Dots::kMany);
        return p.few_rows <= Slice::kFew && p.lies_across() == kAcross && packed && enough &&
               Slice::most_depth() > 0;
    }
    static SkinnyPlan plan(const Skinny& p) { return slice_plan<Dots>(p, Slice::most_depth()); }
    template <typename Epilogue>
    static int launch(const Skinny& p, const SkinnyPlan& plan, const EpilogueStore<Epilogue>& sink,
                      cudaStream_t stream) {
        return launch_row_slices<Dots>(p, plan, sink, stream);
    }
};

}  // namespace op
