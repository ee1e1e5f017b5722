// Products of float32 with few rows on one side, of which the other operand's lie along k: dot
// products at the speed of memory. A block copies what it needs into a ring of stages in shared
// memory, many stages ahead, also across the ends of its tasks, while its warps multiply the
// oldest: what is on its way takes no registers and does not wait for arithmetic.
//
// An H200 (132 multiprocessors of four schedulers, 4.5 TB/s) brings a stage's 32 KB of `many` to
// each multiprocessor in 0.95 us. Five stages on their way, four beside 16 rows, are more than 128
// KB; the memory's latency asks for about 30. A warp has, for a stage (instructions of sm_90a, by
// reading): for 16 rows 725, of which 512 multiply-adds, 24 loads from shared memory and 10 copies,
// and 35 for its share of adding up the lanes' sums; two warps a scheduler take 1520 cycles, 0.80
// us at 1.9 GHz. For one row about 200: 0.2 us. So all are bound by memory, 16 rows with a sixth of
// the time to spare.

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

// @RowRing deps: Skinny, SkinnyPlan, load_vector, scatter_sum
// A warp makes kMany x kFew dot products. A stage is kDepth k of the warps' rows of `many`, and of
// `few` kDepth k for each of plan.parts warps that share rows.
template <int kFewRows>
struct RowRing {
    static constexpr int kFew = kFewRows, kMany = 8, kCount = kMany * kFew, kTake = 4;
    static constexpr int kDepth = 32 * kTake, kOfWarp = kMany * kDepth;
    static constexpr int kRows = Skinny::kWarps * kMany;  // of a block whose warps share none
    static constexpr int kOfMany = kRows * kDepth;        // floats of a stage
    static constexpr int kMostParts = kFew == 16 ? 1 : kFew == 8 ? 4 : 8;
    static constexpr int kMostStages = 6;
    static constexpr int kTotals = Skinny::kWarps * kCount;
    // microseconds of a stage, alone and by its arithmetic
    static constexpr double kBusyUs = kFew > 12 ? 0.041 * kFew : 0.5;
    // Stages after which the lanes' sums are added up and kept apart: long sums lose digits.
    static constexpr int kStretch = kFew == 16 ? 16 : 8;
    static constexpr int kKept = kCount > 32 ? kCount / 32 : 1;
    float sums[kCount], kept[kKept];
    int stages_left;

    __host__ __device__ static int stage_floats(int parts) {
        return kOfMany + kFew * parts * kDepth;
    }
    // Warps that share rows are a team of `parts`, a power of two: how many there are, and the own.
    __device__ __forceinline__ static int teams(int parts) {
        return Skinny::kWarps >> (31 - __clz(parts));
    }
    __device__ __forceinline__ static int team(int parts) {
        return int(threadIdx.x) / 32 >> (31 - __clz(parts));
    }
    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int i = 0; i < kKept; ++i) kept[i] = 0.0f;
        begin_stretch();
    }
    __device__ __forceinline__ void begin_stretch() {
#pragma unroll
        for (int i = 0; i < kCount; ++i) sums[i] = 0.0f;
        stages_left = kStretch;
    }
    // A stretch ends with its last stage, or with the last one of all.
    __device__ __forceinline__ void end_stretch(bool is_last) {
        if (--stages_left > 0 && !is_last) return;
        scatter_sum(sums);
#pragma unroll
        for (int i = 0; i < kKept; ++i) kept[i] += sums[i];
        begin_stretch();
    }
    __device__ __forceinline__ void add(const float* stage, int parts) {
        const int warp = int(threadIdx.x) / 32, own = int(threadIdx.x) % 32 * kTake;
        Vector<float, kTake> taken[kMany];
#pragma unroll
        for (int r = 0; r < kMany; ++r)
            taken[r] = load_vector<kTake>(stage + warp * kOfWarp + r * kDepth + own);
        const float* few = stage + kOfMany + (warp & (parts - 1)) * kDepth + own;
#pragma unroll
        for (int f = 0; f < kFew; ++f) {
            const auto with = load_vector<kTake>(few);
            few += parts * kDepth;
            if constexpr (kFew == 1) {  // neighbours are added first
#pragma unroll
                for (int r = 0; r < kMany; ++r) {
                    float part = 0.0f;
#pragma unroll
                    for (int j = 0; j < kTake; ++j)
                        part = fmaf(taken[r].lane[j], with.lane[j], part);
                    sums[r] += part;
                }
            } else {
#pragma unroll
                for (int j = 0; j < kTake; ++j)
#pragma unroll
                    for (int r = 0; r < kMany; ++r)
                        sums[r * kFew + f] =
                            fmaf(taken[r].lane[j], with.lane[j], sums[r * kFew + f]);
            }
        }
    }
    // Value r * kFew + f of a warp is the product of its row r and row f of `few`.
    __device__ __forceinline__ void keep(float* totals) {
        const int lane = int(threadIdx.x) % 32;
        totals += int(threadIdx.x) / 32 * kCount;
#pragma unroll
        for (int i = 0; i < kKept; ++i)
            if (lane * kCount % 32 == 0) totals[lane * kCount / 32 + i] = kept[i];
    }
};

// @RingTask deps: Skinny, SkinnyPlan
// The part of a product that one block makes at a time: rows from `first` on, begin <= k < end.
struct RingTask {
    int64_t first, batch, split, begin, end;

    static __host__ __device__ int64_t tiles(const Skinny& p, int rows) {
        return (p.many_rows + rows - 1) / rows;
    }
    __device__ __forceinline__ RingTask(const Skinny& p, const SkinnyPlan& plan, int rows,
                                        int64_t task) {
        const int64_t down = tiles(p, rows), above = task / down;
        first = (task - above * down) * rows, batch = above % p.batches;
        split = above / p.batches, begin = split * plan.k_each;
        end = begin + plan.k_each < p.k ? begin + plan.k_each : p.k;
    }
};

// @RingFeed deps: RingTask, RowRing, copy_async, copy_async_word, shared_address
// Copies stages into the ring, in the order in which the block's tasks take them. Of rows of `few`
// a warp copies as many at once as it has lanes for.
template <typename Ring>
struct RingFeed {
    static constexpr int kLanesOfRow = Ring::kDepth / Ring::kTake, kAtOnce = 32 / kLanesOfRow;
    const Skinny& p;
    const SkinnyPlan& plan;
    int64_t task, tasks, k, end;  // of the next stage
    const float* many;            // this lane's first value of it: of its first row,
    const float* few;             // of row 0, or of those that are copied at once the lane's own
    int rows;                     // of `many`, from the first one on, that exist
    bool packed;                  // both operands may be read 16 bytes at a time

    __device__ __forceinline__ RingFeed(const Skinny& product, const SkinnyPlan& shared,
                                        int64_t count, bool is_packed)
        : p(product), plan(shared), task(blockIdx.x), tasks(count), packed(is_packed) {
        begin();
    }
    // the lane's first k of a stage, and its warp's
    __device__ __forceinline__ int own_k() const {
        const int lane = int(threadIdx.x) % 32;
        return packed ? lane % kLanesOfRow * Ring::kTake : lane;
    }
    // the lane's row among those that are copied at once
    __device__ __forceinline__ int own_row() const {
        return packed && kAtOnce > 1 ? int(threadIdx.x) % 32 / kLanesOfRow : 0;
    }
    __device__ __forceinline__ int warp_k() const {
        return (int(threadIdx.x) / 32 & (plan.parts - 1)) * Ring::kDepth;
    }
    __device__ __forceinline__ void begin() {
        if (task >= tasks) return;
        const RingTask at(p, plan, Ring::kRows / plan.parts, task);
        k = at.begin, end = at.end;
        few = static_cast<const float*>(p.few.data) + at.batch * p.few.batch +
              own_row() * p.few.row + (k + own_k()) * p.few.inner;
        const auto* from = static_cast<const float*>(p.many.data) + at.batch * p.many.batch;
        const int64_t row = at.first + Ring::team(plan.parts) * Ring::kMany;
        const int64_t left = p.many_rows - row;
        rows = left < 0 ? 0 : left < Ring::kMany ? int(left) : Ring::kMany;
        many = from + row * p.many.row + (k + own_k() + warp_k()) * p.many.inner;
    }
    // The lane's values of one row and kDepth k; `left`: how far the end is from the first of them,
    // 0 where the row does not exist. Zeros stand beyond it.
    template <bool kPacked>
    OPWELD_FN void bring_row(unsigned int to, const float* from, int64_t inner, int left) {
        const unsigned int lane = threadIdx.x % 32;
        if constexpr (kPacked) {
            copy_async(to + lane % kLanesOfRow * 16, from, left > 0 ? 16 : 0);
        } else {
#pragma unroll 1
            for (int j = 0; j < Ring::kDepth; j += 32)
                copy_async_word(to + (lane + j) * 4, from + j * inner, j < left ? 4 : 0);
        }
    }
    template <bool kPacked>
    __device__ __forceinline__ void bring_many(unsigned int to, int left) const {
        const int warp = int(threadIdx.x) / 32;
        const float* from = many;
#pragma unroll(kPacked ? Ring::kMany : 1)
        for (int r = 0; r < Ring::kMany; ++r, from += p.many.row)
            bring_row<kPacked>(to + (warp * Ring::kOfWarp + r * Ring::kDepth) * 4, from,
                               p.many.inner, r < rows ? left : 0);
    }
    template <bool kPacked>
    __device__ __forceinline__ void bring_few(unsigned int to, int left) const {
        constexpr int kStep = kPacked ? kAtOnce : 1;
        const int warp = int(threadIdx.x) / 32, parts = plan.parts, deep = warp_k();
        if constexpr (Ring::kMostParts == 1) {
            constexpr int kTogether = Skinny::kWarps * kStep;
            const float* from = few + warp * kStep * p.few.row;
#pragma unroll(kPacked ? (Ring::kFew + kTogether - 1) / kTogether : 1)
            for (int first = 0; first < Ring::kFew;
                 first += kTogether, from += kTogether * p.few.row) {
                const int f = first + warp * kStep + own_row();
                bring_row<kPacked>(to + f * Ring::kDepth * 4, from, p.few.inner,
                                   f < p.few_rows ? left : 0);
            }
        } else {
            const float* from = few + deep * p.few.inner;
#pragma unroll 1
            for (int f = Ring::team(parts); f < Ring::kFew; f += Ring::teams(parts))
                bring_row<kPacked>(to + (f * parts * Ring::kDepth + deep) * 4, from + f * p.few.row,
                                   p.few.inner, f < p.few_rows ? left : 0);
        }
    }
    template <bool kPacked>
    __device__ __forceinline__ void bring_rows(unsigned int to, int left) const {
        bring_many<kPacked>(to, left);
        bring_few<kPacked>(to + Ring::kOfMany * 4, left);
    }
    // The next stage; a group of copies even where there is none.
    __device__ __forceinline__ void bring(float* stage) {
        if (task < tasks) {
            const int step = plan.parts * Ring::kDepth;
            const int left = (end - k < step ? int(end - k) : step) - own_k() - warp_k();
            const unsigned int to = shared_address(stage);
            packed ? bring_rows<true>(to, left) : bring_rows<false>(to, left);
            k += step;
            many += step * p.many.inner;
            few += step * p.few.inner;
            if (k >= end) {
                task += gridDim.x;
                begin();
            }
        }
        commit_copies();
    }
};

// @await_stages deps: copy_groups
// Waits for all but the last `open` groups of this thread's copies, at most 4.
[[maybe_unused]] OPWELD_FN void await_stages(int open) {
    switch (open) {
        case 0:
            return await_copies<0>();
        case 1:
            return await_copies<1>();
        case 2:
            return await_copies<2>();
        case 3:
            return await_copies<3>();
        default:
            return await_copies<4>();
    }
}

// @ring_plan deps: RingTask, RowRing, num_multiprocessors
// How a ring's sums are shared out: with all multiprocessors as busy as can be. Times are
// microseconds, of an H200.
template <typename Ring>
static double ring_time(const Skinny& p, int64_t tasks, int64_t steps, int parts, int64_t splits) {
    const int64_t slots = num_multiprocessors();
    // of a stage of a multiprocessor, while all share the memory
    constexpr double kSharedUs = 0.95 * Ring::kOfMany / 8192;
    constexpr double kTaskUs = 0.3, kCombineUs = 4.0, kBytesOfUs = 3e6;
    const int64_t rounds = (tasks + slots - 1) / slots;
    const double busy = double(tasks < slots ? tasks : slots) / slots;
    // rows of `few` come from the L2 cache, at about three times the speed
    const double read = kSharedUs * busy * (1.0 + Ring::kFew * parts / (3.0 * Ring::kRows));
    const double of_step = read > Ring::kBusyUs ? read : Ring::kBusyUs;
    const double time = double(rounds) * (double(steps) * of_step + kTaskUs);
    if (splits == 1) return time;
    return time + kCombineUs + 8.0 * double(splits * p.batches * p.batch_step) / kBytesOfUs;
}
template <typename Ring>
static SkinnyPlan ring_plan(const Skinny& p) {
    constexpr int64_t kLeastSteps = 4, kMostSteps = 128, kRounds = 4;
    const int64_t slots = num_multiprocessors();
    SkinnyPlan best{1, 1, Ring::kDepth};
    double best_time = 0.0;
    for (int parts = 1; parts <= Ring::kMostParts; parts *= 2) {
        const int64_t tiles = p.batches * RingTask::tiles(p, Ring::kRows / parts);
        const int64_t step = parts * Ring::kDepth, all = (p.k + step - 1) / step;
        const int64_t least = (all + kMostSteps - 1) / kMostSteps;
        const int64_t first = (tiles * least + slots - 1) / slots;
        for (int64_t i = 0; i <= kRounds; ++i) {
            // `least`, then as many as fill whole rounds
            int64_t splits = i == 0 ? least : (first + i - 1) * slots / (tiles > 0 ? tiles : 1);
            splits = splits > all / kLeastSteps ? all / kLeastSteps : splits;
            splits = splits < least ? least : splits;
            splits = splits < SkinnyPlan::kMostSplits ? splits : SkinnyPlan::kMostSplits;
            const int64_t steps = splits > 0 ? (all + splits - 1) / splits : 1;
            splits = (all + steps - 1) / steps;
            const double time = ring_time<Ring>(p, tiles * splits, steps, parts, splits);
            if (best_time > 0.0 && time > 0.99 * best_time) continue;
            best = {parts, splits > 0 ? int(splits) : 1, steps * step}, best_time = time;
        }
    }
    return best;
}

// @RingRows deps: FewRows, RingFeed, EpilogueStore, await_stages, num_multiprocessors, reads_fours, ring_plan
template <typename Ring, typename Epilogue>
__global__ void __launch_bounds__(Skinny::kThreads, 1)
    row_ring_kernel(Skinny p, SkinnyPlan plan, bool packed, int stages, int64_t tasks,
                    EpilogueStore<Epilogue> sink) {
    constexpr int kMany = Ring::kMany, kFew = Ring::kFew;
    extern __shared__ __align__(16) float ring_memory[];
    float* const totals = ring_memory;
    float* const first_stage = ring_memory + Ring::kTotals;
    const int size = Ring::stage_floats(plan.parts), rows = Ring::kRows / plan.parts;
    RingFeed<Ring> feed(p, plan, tasks, packed);
#pragma unroll 1
    for (int i = 0; i < stages - 1; ++i) feed.bring(first_stage + i * size);
    int slot = 0, empty = stages - 1;
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const RingTask at(p, plan, rows, task);
        Ring ring;
        ring.begin();
        for (int64_t k = at.begin; k < at.end; k += plan.parts * Ring::kDepth) {
            await_stages(stages - 2);
            __syncthreads();  // the stage is there for all, and all have read the one before it
            feed.bring(first_stage + empty * size);
            ring.add(first_stage + slot * size, plan.parts);
            ring.end_stretch(k + plan.parts * Ring::kDepth >= at.end);
            empty = slot;
            slot = slot + 1 < stages ? slot + 1 : 0;
        }
        ring.keep(totals);
        __syncthreads();
        // Neighbouring threads take neighbouring rows of `many`. Before the totals are written
        // again, all meet at a stage.
#pragma unroll 1
        for (int i = int(threadIdx.x); i < rows * kFew; i += Skinny::kThreads) {
            const int f = i / rows, in_block = i % rows;
            if (f >= p.few_rows || at.first + in_block >= p.many_rows) continue;
            float total[1] = {};
#pragma unroll 1
            for (int part = 0; part < plan.parts; ++part)
                total[0] += totals[(in_block / kMany * plan.parts + part) * Ring::kCount +
                                   in_block % kMany * kFew + f];
            sink.take(
                at.split,
                at.batch * p.batch_step + f * p.few_step + (at.first + in_block) * p.many_step,
                total);
        }
    }
    await_copies<0>();
}
template <typename Ring, typename Epilogue>
static int launch_row_ring(const Skinny& p, const SkinnyPlan& plan,
                           const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
    const bool packed = reads_fours(p.few, p.few.inner, p.few.row, p.k) &&
                        reads_fours(p.many, p.many.inner, p.many.row, p.k);
    const auto kernel = row_ring_kernel<Ring, Epilogue>;
    int device = 0, room = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    const int size = Ring::stage_floats(plan.parts) * int(sizeof(float));
    const int total_bytes = Ring::kTotals * int(sizeof(float));
    const int fitting = (room - total_bytes) / size;
    const int stages = fitting < Ring::kMostStages ? fitting : Ring::kMostStages;
    if (stages < 2) return int(cudaErrorInvalidConfiguration);
    const int bytes = total_bytes + stages * size;
    const int error =
        int(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    if (error) return error;
    const int64_t tiles = RingTask::tiles(p, Ring::kRows / plan.parts);
    const int64_t tasks = tiles * p.batches * plan.splits, most = num_multiprocessors();
    kernel<<<(unsigned int)(tasks < most ? tasks : most), Skinny::kThreads, bytes, stream>>>(
        p, plan, packed, stages, tasks, sink);
    return int(cudaGetLastError());
}
// Up to kFew rows beside rows that lie along k; it could make those of any strides, but slower.
template <int kFew>
struct RingRows {
    static bool takes(const Skinny& p) {
        return p.few_rows <= kFew && p.k >= Skinny::kLeastAlong && !p.lies_across();
    }
    static SkinnyPlan plan(const Skinny& p) { return ring_plan<RowRing<kFew>>(p); }
    template <typename Epilogue>
    static int launch(const Skinny& p, const SkinnyPlan& plan, const EpilogueStore<Epilogue>& sink,
                      cudaStream_t stream) {
        return launch_row_ring<RowRing<kFew>>(p, plan, sink, stream);
    }
};

}  // namespace op
