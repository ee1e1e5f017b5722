// Products of 16-bit operands with few rows on one side, of which the other operand's lie along k:
// warps make dot products.

namespace op {

// @scatter_sum deps:
// The sums over a warp's lanes of kCount values each, shared out: a lane is left with the sum of
// value lane * kCount / 32 in values[0] and, where kCount > 32, with the next ones after it.
template <int kCount>
OPWELD_FN void scatter_sum(float (&values)[kCount]) {
    const int lane = int(threadIdx.x) % 32;
    int count = kCount;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        if (count == 1) {
            values[0] += __shfl_xor_sync(0xffffffffu, values[0], offset);
            continue;
        }
        count /= 2;
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) {
            if (i >= count) continue;
            const float send = lane & offset ? values[i] : values[i + count];
            const float keep = lane & offset ? values[i + count] : values[i];
            values[i] = keep + __shfl_xor_sync(0xffffffffu, send, offset);
        }
    }
}

// @take_along deps:
// kTake values along k for one lane, every 32nd, steps of `inner` apart. `left`: how far the end is
// from the first; zeros follow.
template <int kTake, typename T>
OPWELD_FN Vector<T, kTake> take_along(const T* first, int64_t inner, int64_t left) {
    Vector<T, kTake> taken;
#pragma unroll
    for (int j = 0; j < kTake; ++j)
        taken.lane[j] = 32 * j < left ? first[32 * j * inner] : T{};
    return taken;
}

// @FmaDots deps: Skinny, SkinnyPlan, Vector, scatter_sum, take_along, to_compute
// kMany x kFew dot products of a warp on the CUDA cores, of operands of any strides.
template <typename Storage>
struct FmaDots {
    using T = Storage;
    static constexpr int kFew = 16, kMany = 2, kCount = kMany * kFew, kTake = 4, kStep = 32 * kTake;
    const T* few;
    const T* many[kMany];
    float sums[kCount];

    __device__ __forceinline__ void begin(const Skinny& p, int64_t batch, int64_t first) {
        few = static_cast<const T*>(p.few.data) + batch * p.few.batch;
#pragma unroll
        for (int r = 0; r < kMany; ++r) {
            // Rows past the end repeat the last: their sums are not kept.
            const int64_t row = first + r < p.many_rows ? first + r : p.many_rows - 1;
            many[r] = static_cast<const T*>(p.many.data) + batch * p.many.batch + row * p.many.row;
        }
#pragma unroll
        for (int i = 0; i < kCount; ++i) sums[i] = 0.0f;
    }
    __device__ __forceinline__ void add(const Skinny& p, int64_t k, int64_t end) {
        const int64_t own = k + int64_t(threadIdx.x) % 32, left = end - own;
        Vector<T, kTake> taken[kMany];
#pragma unroll
        for (int r = 0; r < kMany; ++r)
            taken[r] = take_along<kTake>(many[r] + own * p.many.inner, p.many.inner, left);
        // One pointer that moves on: one for each row would take the registers of the loads.
        const T* with = few + own * p.few.inner;
#pragma unroll
        for (int f = 0; f < kFew; ++f) {
            if (f >= p.few_rows) break;
            const auto beside = take_along<kTake>(with, p.few.inner, left);
#pragma unroll
            for (int j = 0; j < kTake; ++j)
#pragma unroll
                for (int r = 0; r < kMany; ++r)
                    sums[r * kFew + f] = fmaf(to_compute(taken[r].lane[j]),
                                              to_compute(beside.lane[j]), sums[r * kFew + f]);
            with += p.few.row;
        }
    }
    __device__ __forceinline__ void keep(float (&totals)[kCount]) {
        scatter_sum(sums);
        totals[int(threadIdx.x) % 32] = sums[0];
    }
};

// @MmaDots deps: Skinny, SkinnyPlan, load_vector, load_vector_streaming, mma_16x8x16
// 16 x 16 dot products of a warp on the tensor cores, of 16-bit operands whose rows can be read
// in vectors. Four lanes share a row and take 8 neighbours in k each, as both operands' k may be
// dealt to the instruction's in any order that is the same.
template <typename Storage>
struct MmaDots {
    using T = Storage;
    static constexpr bool kPacked = true;
    static constexpr int kFew = 16, kMany = 16, kCount = kMany * kFew;
    static constexpr int kTake = 8, kStep = 128;
    struct Loaded {
        unsigned int word[2][4];  // of two rows
    };
    const T* few[2];
    const T* many[2];
    bool few_exists[2];
    float sums[2][4];

    __device__ __forceinline__ void begin(const Skinny& p, int64_t batch, int64_t first) {
        const int row = int(threadIdx.x) % 32 / 4;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int64_t f = row + 8 * i;
            const int64_t r = first + f < p.many_rows ? first + f : p.many_rows - 1;
            few_exists[i] = f < p.few_rows;
            few[i] = static_cast<const T*>(p.few.data) + batch * p.few.batch + f * p.few.row;
            many[i] = static_cast<const T*>(p.many.data) + batch * p.many.batch + r * p.many.row;
#pragma unroll
            for (int j = 0; j < 4; ++j) sums[i][j] = 0.0f;
        }
    }
    __device__ __forceinline__ void add(const Skinny& p, int64_t k, int64_t end) {
        Loaded b[kStep / 32];
#pragma unroll
        for (int i = 0; i < kStep / 32; ++i) b[i] = load<true>(many, true, true, k + 32 * i, end);
#pragma unroll
        for (int i = 0; i < kStep / 32; ++i) {
            const Loaded a = load<false>(few, few_exists[0], few_exists[1], k + 32 * i, end);
#pragma unroll
            for (int w = 0; w < 4; w += 2) {
                const unsigned int rows[4] = {a.word[0][w], a.word[1][w], a.word[0][w + 1],
                                              a.word[1][w + 1]};
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const unsigned int columns[2] = {b[i].word[j][w], b[i].word[j][w + 1]};
                    mma_16x8x16<T>(sums[j], rows, columns);
                }
            }
        }
    }
    __device__ __forceinline__ void keep(float (&totals)[kCount]) {
        const int lane = int(threadIdx.x) % 32;
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int f = lane / 4 + j / 2 * 8, r = 8 * i + lane % 4 * 2 + j % 2;
                totals[r * kFew + f] = sums[i][j];
            }
    }
    template <bool kOnce>
    OPWELD_FN Loaded load(const T* const (&rows)[2], bool first, bool second, int64_t k,
                          int64_t end) {
        Loaded loaded;
        const int64_t at = k + threadIdx.x % 4 * kTake;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            Vector<unsigned int, 4> words = {};
            const auto* from = reinterpret_cast<const unsigned int*>(rows[i] + at);
            if ((i ? second : first) && at < end)
                words = kOnce ? load_vector_streaming<4>(from) : load_vector<4>(from);
#pragma unroll
            for (int w = 0; w < 4; ++w) loaded.word[i][w] = words.lane[w];
        }
        return loaded;
    }
};

// @row_dots_plan deps: Skinny, SkinnyPlan
template <typename Dots>
static SkinnyPlan row_dots_plan(const Skinny& p) {
    const int64_t teams = p.batches * ((p.many_rows + Dots::kMany - 1) / Dots::kMany);
    return SkinnyPlan::of(teams, p.k, Dots::kStep, 1);
}

// @row_dots deps: Sink, row_dots_plan
// A team of plan.parts warps makes the dot products of Dots::kMany rows of `many`.
template <typename Dots, typename Epilogue>
__global__ void __launch_bounds__(Skinny::kThreads, 2)
    row_dots_kernel(Skinny p, SkinnyPlan plan, Sink<Epilogue> sink) {
    constexpr int kFew = Dots::kFew, kMany = Dots::kMany, kCount = Dots::kCount;
    __shared__ float totals[Skinny::kWarps][kCount];
    const int warp = int(threadIdx.x) / 32;
    const int teams = Skinny::kWarps / plan.parts, team_rows = teams * kMany;
    const int64_t blocks = (p.many_rows + team_rows - 1) / team_rows;
    for (int64_t task = blockIdx.x; task < blocks * p.batches * plan.splits; task += gridDim.x) {
        const int64_t first = task % blocks * team_rows, batch = task / blocks % p.batches;
        const int64_t split = task / blocks / p.batches, begin = split * plan.k_each;
        const int64_t end = begin + plan.k_each < p.k ? begin + plan.k_each : p.k;
        Dots dots;
        dots.begin(p, batch, first + warp / plan.parts * kMany);
        for (int64_t k = begin + warp % plan.parts * Dots::kStep; k < end;
             k += plan.parts * Dots::kStep)
            dots.add(p, k, end);
        dots.keep(totals[warp]);
        __syncthreads();
        // Neighbouring threads take neighbouring rows of `many`.
#pragma unroll 1
        for (int i = int(threadIdx.x); i < team_rows * kFew; i += Skinny::kThreads) {
            const int f = i / team_rows, in_block = i % team_rows, team = in_block / kMany;
            if (f >= p.few_rows || first + in_block >= p.many_rows) continue;
            float total[1] = {};
            for (int part = 0; part < plan.parts; ++part)
                total[0] += totals[team * plan.parts + part][in_block % kMany * kFew + f];
            sink.take(split,
                      batch * p.batch_step + f * p.few_step + (first + in_block) * p.many_step,
                      total);
        }
        __syncthreads();  // the totals have been read
    }
}
template <typename Dots, typename Epilogue>
static int launch_row_dots(const Skinny& p, const SkinnyPlan& plan, const Sink<Epilogue>& sink,
                           cudaStream_t stream) {
    constexpr int64_t kMostBlocks = 1 << 20;
    const int64_t team_rows = Skinny::kWarps / plan.parts * Dots::kMany;
    const int64_t blocks = (p.many_rows + team_rows - 1) / team_rows * p.batches * plan.splits;
    row_dots_kernel<Dots><<<(unsigned int)(blocks < kMostBlocks ? blocks : kMostBlocks),
                            Skinny::kThreads, 0, stream>>>(p, plan, sink);
    return int(cudaGetLastError());
}

}  // namespace op
