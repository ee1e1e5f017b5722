// Products with few rows on one side, of which the other operand's lie across k: threads keep the
// sums of neighbouring rows.

namespace op {

// @take_across deps: load_vector_streaming
// What a lane takes of one k, of which `rows` exist: kOwn neighbours by one load where kPacked,
// else every 32nd.
template <int kOwn, bool kPacked>
OPWELD_FN Vector<float, kOwn> take_across(const float* at, int64_t stride, int64_t rows) {
    const int lane = int(threadIdx.x) % 32;
    if constexpr (kPacked) {
        if (lane * kOwn < rows) return load_vector_streaming<kOwn>(at + lane * kOwn);
    }
    Vector<float, kOwn> taken;
#pragma unroll
    for (int j = 0; j < kOwn; ++j)
        taken.lane[j] = !kPacked && lane + 32 * j < rows ? at[(lane + 32 * j) * stride] : 0.0f;
    return taken;
}

// @ColumnSums deps: Skinny, SkinnyPlan, take_across
// A lane keeps the sums of kOwn rows of `many`; the warps of a block share out k.
template <int kFewRows, bool kIsPacked>
struct ColumnSums {
    static constexpr bool kPacked = kIsPacked;
    static constexpr int kFew = kFewRows, kOwn = kFew == 16 && !kPacked ? 2 : 4;
    static constexpr int kRows = 32 * kOwn;
    static constexpr int kStep = 32;  // k of a warp at a time
    // Loads on their way; the blocks of a multiprocessor that have registers for them.
    static constexpr int kAhead = kFew == 16 && kPacked ? 16 : 8, kBlocks = 16 / kAhead;
    using Few = float[kStep][kFew];
    float sums[kFew][kOwn];

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int f = 0; f < kFew; ++f)
#pragma unroll
            for (int j = 0; j < kOwn; ++j) sums[f][j] = 0.0f;
    }
    // `many` is at the lane's first k; `few` belongs to the warp.
    __device__ __forceinline__ void add(const Skinny& p, const float* with, const float* many,
                                        int depth, int64_t rows, Few& few) {
        const int lane = int(threadIdx.x) % 32;
        __syncwarp();  // all lanes have used what was there
#pragma unroll
        for (int f = 0; f < kFew; ++f)
            few[lane][f] =
                f < p.few_rows && lane < depth ? with[f * p.few.row + lane * p.few.inner] : 0.0f;
        __syncwarp();
#pragma unroll 1
        for (int k = 0; k < depth; k += kAhead) {
            Vector<float, kOwn> taken[kAhead];
#pragma unroll
            for (int i = 0; i < kAhead; ++i)
                taken[i] = take_across<kOwn, kPacked>(many + (k + i) * p.many.inner, p.many.row,
                                                      k + i < depth ? rows : 0);
#pragma unroll
            for (int i = 0; i < kAhead; ++i)
#pragma unroll
                for (int f = 0; f < kFew; ++f)
#pragma unroll
                    for (int j = 0; j < kOwn; ++j)
                        sums[f][j] = fmaf(few[k + i][f], taken[i].lane[j], sums[f][j]);
        }
    }
    static SkinnyPlan plan(const Skinny& p) {
        const int64_t teams = p.batches * ((p.many_rows + kRows - 1) / kRows);
        return SkinnyPlan::of(teams, p.k, kStep, Skinny::kWarps);
    }
};

// @ColumnRows deps: ColumnSums, FewRows, EpilogueStore, reads_fours
template <typename Sums, typename Epilogue>
__global__ void __launch_bounds__(Skinny::kThreads, Sums::kBlocks)
    column_sums_kernel(Skinny p, SkinnyPlan plan, EpilogueStore<Epilogue> sink) {
    constexpr int kFew = Sums::kFew, kOwn = Sums::kOwn, kRows = Sums::kRows;
    __shared__ __align__(16) float few[Skinny::kWarps][Sums::kStep][kFew];
    __shared__ float totals[Skinny::kWarps][kRows];
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const int64_t blocks = (p.many_rows + kRows - 1) / kRows;
    for (int64_t task = blockIdx.x; task < blocks * p.batches * plan.splits; task += gridDim.x) {
        const int64_t first = task % blocks * kRows, batch = task / blocks % p.batches;
        const int64_t split = task / blocks / p.batches, begin = split * plan.k_each;
        const int64_t end = begin + plan.k_each < p.k ? begin + plan.k_each : p.k;
        const int64_t rows = p.many_rows - first;
        const auto* with = static_cast<const float*>(p.few.data) + batch * p.few.batch;
        const auto* many =
            static_cast<const float*>(p.many.data) + batch * p.many.batch + first * p.many.row;
        Sums own;
        own.begin();
        for (int64_t k = begin + warp * Sums::kStep; k < end; k += Skinny::kWarps * Sums::kStep)
            own.add(p, with + k * p.few.inner, many + k * p.many.inner,
                    int(end - k < Sums::kStep ? end - k : Sums::kStep), rows, few[warp]);
        __syncthreads();
        // The warps' sums take turns in shared memory; what becomes of them is one place's matter.
        float(&sums)[kFew][kRows] = *reinterpret_cast<float(*)[kFew][kRows]>(&few[0][0][0]);
#pragma unroll
        for (int f = 0; f < kFew; ++f) {
            if (f >= p.few_rows) continue;
#pragma unroll
            for (int j = 0; j < kOwn; ++j)
                totals[warp][Sums::kPacked ? lane * kOwn + j : lane + 32 * j] = own.sums[f][j];
            __syncthreads();
            if (threadIdx.x < kRows) {
                float total = 0.0f;
                for (int part = 0; part < Skinny::kWarps; ++part)
                    total += totals[part][threadIdx.x];
                sums[f][threadIdx.x] = total;
            }
            __syncthreads();
        }
#pragma unroll 1
        for (int i = int(threadIdx.x); i < p.few_rows * kRows; i += Skinny::kThreads) {
            const int f = i / kRows, row = i % kRows;
            const float total[1] = {sums[f][row]};
            if (row < rows)
                sink.take(split,
                          batch * p.batch_step + f * p.few_step + (first + row) * p.many_step,
                          total);
        }
        __syncthreads();  // the sums have been read
    }
}
template <typename Sums, typename Epilogue>
static int launch_column_sums(const Skinny& p, const SkinnyPlan& plan,
                              const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
    constexpr int64_t kMostBlocks = 1 << 20;
    const int64_t blocks = (p.many_rows + Sums::kRows - 1) / Sums::kRows * p.batches * plan.splits;
    column_sums_kernel<Sums><<<(unsigned int)(blocks < kMostBlocks ? blocks : kMostBlocks),
                               Skinny::kThreads, 0, stream>>>(p, plan, sink);
    return int(cudaGetLastError());
}
// Up to kFew rows beside rows that lie across k, which are read in vectors where kPacked.
template <int kFew, bool kPacked>
struct ColumnRows {
    using Sums = ColumnSums<kFew, kPacked>;
    static bool takes(const Skinny& p) {
        const bool packed = !kPacked || reads_fours(p.many, p.many.row, p.many.inner, p.many_rows);
        return p.few_rows <= kFew && p.lies_across() && packed;
    }
    static SkinnyPlan plan(const Skinny& p) { return Sums::plan(p); }
    template <typename Epilogue>
    static int launch(const Skinny& p, const SkinnyPlan& plan, const EpilogueStore<Epilogue>& sink,
                      cudaStream_t stream) {
        return launch_column_sums<Sums>(p, plan, sink, stream);
    }
};

}  // namespace op
