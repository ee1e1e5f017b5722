// Products with few rows on one side: the other operand, `many`, is read once, at the speed of
// memory. Where its rows lie along k, warps make dot products (row_dots); where they lie across it,
// threads keep the sums of neighbouring rows (column_sums).

namespace op {

// @Skinny deps: Operand, Product
// A product seen from its operand of few rows. The result's element of rows `f` and `r` lies at
// batch * batch_step + f * few_step + r * many_step.
struct Skinny {
    static constexpr int kMostFew = 16;
    static constexpr int kWarps = 8;  // of a block
    static constexpr int kThreads = 32 * kWarps;
    Operand few, many;
    int64_t batches, few_rows, many_rows, k, batch_step, few_step, many_step;

    static Skinny of(const Product& p) {
        if (p.m <= p.n) return {p.a, p.b, p.batches, p.m, p.n, p.k, p.m * p.n, p.n, 1};
        return {p.b, p.a, p.batches, p.n, p.m, p.k, p.m * p.n, 1, p.n};
    }
    // Rows of `many` lie across k: neighbouring rows are nearer than neighbours in k.
    bool lies_across() const {
        return many.row < many.inner || (many.row == 1 && k == 1);
    }
};

// @SkinnyPlan deps: Skinny
// How the sums over k are shared out: among `parts` warps of a block, a power of two, and among
// `splits` blocks of k_each k.
struct SkinnyPlan {
    static constexpr int kAimWarps = 132 * 32;  // what keeps the memory of an H200 busy
    static constexpr int kMostSplits = 256;
    static constexpr int kLeastSteps = 4;  // of a warp, below which sharing out is not worth it
    static constexpr int kMostSteps = 16;  // of a warp: longer chains of sums lose digits
    int parts, splits;
    int64_t k_each;

    // `teams` have sums of their own; a warp advances by at most `step` k at a time.
    static SkinnyPlan of(int64_t teams, int64_t k, int64_t step, int least_parts) {
        SkinnyPlan plan{least_parts, 1, 0};
        const int64_t wanted = (kAimWarps + teams - 1) / teams;
        while (plan.parts < Skinny::kWarps && plan.parts < wanted &&
               plan.parts * step * kLeastSteps <= k)
            plan.parts *= 2;
        const int64_t block_step = plan.parts * step, most = k / (block_step * kLeastSteps);
        // Twice as many as run at once, so that the last to end have little left.
        int64_t splits = wanted > plan.parts ? 2 * wanted / plan.parts : 1;
        splits = splits < most ? splits : most;
        const int64_t least = (k + block_step * kMostSteps - 1) / (block_step * kMostSteps);
        splits = splits < least ? least : splits;
        splits = splits < kMostSplits ? splits : kMostSplits;
        if (plan.parts < Skinny::kWarps || splits < 1) splits = 1;
        plan.k_each = ((k + splits - 1) / splits + block_step - 1) / block_step * block_step;
        plan.splits = plan.k_each ? int((k + plan.k_each - 1) / plan.k_each) : 1;
        return plan;
    }
};

// @can_load_vectors deps: Operand
// Neighbours along the axis of stride `along`, of so many elements, may be read kLanes at a time.
template <typename T, int kLanes>
static bool can_load_vectors(const Operand& operand, int64_t along, int64_t across,
                             int64_t extent) {
    return along == 1 && extent % kLanes == 0 && across % kLanes == 0 &&
           operand.batch % kLanes == 0 &&
           reinterpret_cast<uintptr_t>(operand.data) % (sizeof(T) * kLanes) == 0;
}

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

// --- dot products: rows of `many` lie along k ---

// @take_along deps: load_vector, load_vector_streaming
// kTake values along k for one lane: neighbours by one load where kPacked, else every 32nd, steps
// of `inner` apart. `left`: how far the end is from the first; zeros follow. kOnce: they are not
// needed again.
template <int kTake, bool kPacked, bool kOnce, typename T>
OPWELD_FN Vector<T, kTake> take_along(const T* first, int64_t inner, int64_t left) {
    if constexpr (kPacked) {
        if (left > 0)
            return kOnce ? load_vector_streaming<kTake>(first) : load_vector<kTake>(first);
    }
    Vector<T, kTake> taken;
#pragma unroll
    for (int j = 0; j < kTake; ++j)
        taken.lane[j] = !kPacked && 32 * j < left ? first[32 * j * inner] : T(0.0f);
    return taken;
}

// @FmaDots deps: Skinny, SkinnyPlan, scatter_sum, take_along, to_compute
// kMany x kFew dot products of a warp on the CUDA cores. A lane has kBatch * kMany loads on their
// way at once.
template <typename Storage, int kFewRows, bool kIsPacked>
struct FmaDots {
    using T = Storage;
    static constexpr bool kPacked = kIsPacked;
    static constexpr int kFew = kFewRows, kMany = kFew == 1 ? 8 : (kFew == 8 ? 4 : 2);
    static constexpr int kCount = kMany * kFew, kBatch = kPacked ? (kFew == 16 ? 3 : 8 / kMany) : 1;
    static constexpr int kTake = 4, kStep = 32 * kTake * kBatch;
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
        constexpr int kDeep = kStep / kBatch;
        const int64_t inner = kPacked ? 1 : p.few.inner, many_inner = kPacked ? 1 : p.many.inner;
        const int64_t own = k + int64_t(threadIdx.x) % 32 * (kPacked ? kTake : 1), left = end - own;
        Vector<T, kTake> taken[kBatch][kMany];
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
#pragma unroll
            for (int r = 0; r < kMany; ++r)
                taken[i][r] = take_along<kTake, kPacked, true>(
                    many[r] + (own + i * kDeep) * many_inner, many_inner, left - i * kDeep);
        // One pointer that moves on: one for each row would take the registers of the loads.
        const T* with = few + own * inner;
#pragma unroll
        for (int f = 0; f < kFew; ++f) {
            if (kFew > 1 && f >= p.few_rows) break;
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                add_row(f, taken[i],
                        take_along<kTake, kPacked, false>(with + i * kDeep * inner, inner,
                                                          left - i * kDeep));
            with += p.few.row;
        }
    }
    __device__ __forceinline__ void add_row(int f, const Vector<T, kTake> (&taken)[kMany],
                                            const Vector<T, kTake>& with) {
        if constexpr (kFew == 1) {  // long sums: neighbours are added first
#pragma unroll
            for (int r = 0; r < kMany; ++r) {
                float part = 0.0f;
#pragma unroll
                for (int j = 0; j < kTake; ++j)
                    part = fmaf(to_compute(taken[r].lane[j]), to_compute(with.lane[j]), part);
                sums[r] += part;
            }
        } else {
#pragma unroll
            for (int j = 0; j < kTake; ++j)
#pragma unroll
                for (int r = 0; r < kMany; ++r)
                    sums[r * kFew + f] = fmaf(to_compute(taken[r].lane[j]),
                                              to_compute(with.lane[j]), sums[r * kFew + f]);
        }
    }
    __device__ __forceinline__ void keep(float (&totals)[kCount]) {
        const int lane = int(threadIdx.x) % 32;
        scatter_sum(sums);
        constexpr int kLeft = kCount > 32 ? kCount / 32 : 1;
#pragma unroll
        for (int i = 0; i < kLeft; ++i)
            if (lane * kCount % 32 == 0) totals[lane * kCount / 32 + i] = sums[i];
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

// --- sums of columns: rows of `many` lie across k ---

// @take_across deps: load_vector_streaming
// What a lane takes of one k, of which `rows` exist: kOwn neighbours by one load where kPacked,
// else every 32nd.
template <int kOwn, bool kPacked, typename T>
OPWELD_FN Vector<T, kOwn> take_across(const T* at, int64_t stride, int64_t rows) {
    const int lane = int(threadIdx.x) % 32;
    if constexpr (kPacked) {
        if (lane * kOwn < rows) return load_vector_streaming<kOwn>(at + lane * kOwn);
    }
    Vector<T, kOwn> taken;
#pragma unroll
    for (int j = 0; j < kOwn; ++j)
        taken.lane[j] = !kPacked && lane + 32 * j < rows ? at[(lane + 32 * j) * stride] : T(0.0f);
    return taken;
}

// @ColumnSums deps: Skinny, SkinnyPlan, take_across, to_compute
// A lane keeps the sums of kOwn rows of `many`; the warps of a block share out k.
template <typename Storage, int kFewRows, bool kIsPacked>
struct ColumnSums {
    using T = Storage;
    static constexpr bool kPacked = kIsPacked;
    static constexpr int kFew = kFewRows, kOwn = kFew == 16 ? 2 : 4, kRows = 32 * kOwn;
    static constexpr int kStep = 32;  // k of a warp at a time
    static constexpr int kAhead = 8;  // loads on their way
    using Few = float[kStep][kFew];
    float sums[kFew][kOwn];

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int f = 0; f < kFew; ++f)
#pragma unroll
            for (int j = 0; j < kOwn; ++j) sums[f][j] = 0.0f;
    }
    // `many` is at the lane's first k; `few` belongs to the warp.
    __device__ __forceinline__ void add(const Skinny& p, const T* with, const T* many, int depth,
                                        int64_t rows, Few& few) {
        const int lane = int(threadIdx.x) % 32;
        __syncwarp();  // all lanes have used what was there
#pragma unroll
        for (int f = 0; f < kFew; ++f)
            few[lane][f] = f < p.few_rows && lane < depth
                               ? to_compute(with[f * p.few.row + lane * p.few.inner])
                               : 0.0f;
        __syncwarp();
#pragma unroll 1
        for (int k = 0; k < depth; k += kAhead) {
            Vector<T, kOwn> taken[kAhead];
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
                        sums[f][j] = fmaf(few[k + i][f], to_compute(taken[i].lane[j]), sums[f][j]);
        }
    }
    static SkinnyPlan plan(const Skinny& p) {
        const int64_t teams = p.batches * ((p.many_rows + kRows - 1) / kRows);
        return SkinnyPlan::of(teams, p.k, kStep, Skinny::kWarps);
    }
};

// @column_sums deps: ColumnSums, Sink
template <typename Sums, typename Epilogue>
__global__ void __launch_bounds__(Skinny::kThreads, 2)
    column_sums_kernel(Skinny p, SkinnyPlan plan, Sink<Epilogue> sink) {
    using T = typename Sums::T;
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
        const T* with = static_cast<const T*>(p.few.data) + batch * p.few.batch;
        const T* many =
            static_cast<const T*>(p.many.data) + batch * p.many.batch + first * p.many.row;
        Sums own;
        own.begin();
        for (int64_t k = begin + warp * Sums::kStep; k < end; k += Skinny::kWarps * Sums::kStep)
            own.add(p, with + k * p.few.inner, many + k * p.many.inner,
                    int(end - k < Sums::kStep ? end - k : Sums::kStep), rows, few[warp]);
        __syncthreads();
        // The warps' sums take turns in shared memory; what becomes of them is one place's matter.
        float (&sums)[kFew][kRows] = *reinterpret_cast<float (*)[kFew][kRows]>(&few[0][0][0]);
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
static int launch_column_sums(const Skinny& p, const SkinnyPlan& plan, const Sink<Epilogue>& sink,
                              cudaStream_t stream) {
    constexpr int64_t kMostBlocks = 1 << 20;
    const int64_t blocks =
        (p.many_rows + Sums::kRows - 1) / Sums::kRows * p.batches * plan.splits;
    column_sums_kernel<Sums><<<(unsigned int)(blocks < kMostBlocks ? blocks : kMostBlocks),
                               Skinny::kThreads, 0, stream>>>(p, plan, sink);
    return int(cudaGetLastError());
}

// --- the choice ---

// @skinny_case deps: ColumnSums, FmaDots, MmaDots, can_load_vectors, row_dots_plan
// Calls visit.dots<Dots>(plan) or visit.sums<Sums>(plan) with the kernel for a product.
template <typename T, typename Visit>
static int visit_row_dots(const Skinny& p, bool packed, const Visit& visit) {
    using Apart = FmaDots<T, 16, false>;
    if (!packed) return visit.template dots<Apart>(row_dots_plan<Apart>(p));
    if constexpr (sizeof(T) == 2) {
        return visit.template dots<MmaDots<T>>(row_dots_plan<MmaDots<T>>(p));
    } else {
        using One = FmaDots<T, 1, true>;
        using Eight = FmaDots<T, 8, true>;
        using Sixteen = FmaDots<T, 16, true>;
        if (p.few_rows == 1) return visit.template dots<One>(row_dots_plan<One>(p));
        if (p.few_rows <= 8) return visit.template dots<Eight>(row_dots_plan<Eight>(p));
        return visit.template dots<Sixteen>(row_dots_plan<Sixteen>(p));
    }
}
template <typename T, typename Visit>
static int visit_column_sums(const Skinny& p, bool packed, const Visit& visit) {
    using Apart = ColumnSums<T, 16, false>;
    using Four = ColumnSums<T, 4, true>;
    using Sixteen = ColumnSums<T, 16, true>;
    if (!packed) return visit.template sums<Apart>(Apart::plan(p));
    if (p.few_rows <= 4) return visit.template sums<Four>(Four::plan(p));
    return visit.template sums<Sixteen>(Sixteen::plan(p));
}
template <typename T, typename Visit>
static int visit_skinny(const Skinny& p, const Visit& visit) {
    constexpr int kAlong = 16 / sizeof(T), kAcross = 4;
    if (p.lies_across())
        return visit_column_sums<T>(
            p, can_load_vectors<T, kAcross>(p.many, p.many.row, p.many.inner, p.many_rows), visit);
    const bool packed = can_load_vectors<T, kAlong>(p.many, p.many.inner, p.many.row, p.k) &&
                        can_load_vectors<T, kAlong>(p.few, p.few.inner, p.few.row, p.k);
    return visit_row_dots<T>(p, packed, visit);
}

// @launch_skinny deps: column_sums, combine_parts, row_dots, skinny_case
// A product with at most Skinny::kMostFew rows on one side, and its epilogue. `workspace` has
// skinny_bytes.
template <typename Epilogue>
struct SkinnyLaunch {
    const Skinny& p;
    Sink<Epilogue> sink;
    float* workspace;
    cudaStream_t stream;

    template <typename Dots>
    int dots(const SkinnyPlan& plan) const {
        return combined(plan, launch_row_dots<Dots>(p, plan, sink_of(plan), stream));
    }
    template <typename Sums>
    int sums(const SkinnyPlan& plan) const {
        return combined(plan, launch_column_sums<Sums>(p, plan, sink_of(plan), stream));
    }
    Sink<Epilogue> sink_of(const SkinnyPlan& plan) const {
        Sink<Epilogue> own = sink;
        own.parts = plan.splits > 1 ? workspace : nullptr;
        return own;
    }
    int combined(const SkinnyPlan& plan, int error) const {
        if (error || plan.splits == 1) return error;
        return combine_parts(sink_of(plan), plan.splits, nullptr, stream);
    }
};
template <typename T, typename Epilogue>
static int launch_skinny(const Product& product, const Sink<Epilogue>& sink, float* workspace,
                         cudaStream_t stream) {
    const Skinny p = Skinny::of(product);
    if (sink.extent == 0) return 0;
    return visit_skinny<T>(p, SkinnyLaunch<Epilogue>{p, sink, workspace, stream});
}

// @skinny_bytes deps: skinny_case
// The workspace of a skinny product, whose extents alone are read: enough for any strides.
struct SkinnySplits {
    template <typename Dots>
    int dots(const SkinnyPlan& plan) const {
        return plan.splits;
    }
    template <typename Sums>
    int sums(const SkinnyPlan& plan) const {
        return plan.splits;
    }
};
template <typename T>
static int64_t skinny_bytes(const Product& product) {
    const Skinny p = Skinny::of(product);
    const int64_t extent = p.batches * p.batch_step;
    if (extent == 0) return 0;
    int most = 1;
    for (int packed = 0; packed < 2; ++packed) {
        const int along = visit_row_dots<T>(p, packed != 0, SkinnySplits{});
        const int across = visit_column_sums<T>(p, packed != 0, SkinnySplits{});
        most = along > most ? along : most;
        most = across > most ? across : most;
    }
    return most > 1 ? most * extent * int64_t(sizeof(float)) : 0;
}

}  // namespace op
