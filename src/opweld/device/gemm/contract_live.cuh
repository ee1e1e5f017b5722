// Products of two float32 operands that are both new at each call, with few tiles and long sums:
// what is copied to shared memory is split there, so that nothing is written and read again before.
// On the tensor cores of sm_80 and up, in the form of contract_mma.cuh: 32 values of k of a row are
// a line of 128 bytes, 32 upper and 32 lower parts, each under a scale of its own, for a and for b.

namespace op {

// @LiveTile deps: MmaTile, MmaFormat
// Two lots of split lines, one made while the other is multiplied, and a ring of lots of float32.
struct LiveTile {
    static constexpr int kDepth = 32, kLines = MmaTile::kM + MmaTile::kN;
    static constexpr int kFloatBytes = kLines * kDepth * 4;
    static constexpr int kSplitBytes = kLines * (MmaTile::kRowBytes + 4);  // and the scales
    static constexpr int kMostStages = 4, kLeastStages = 2;
    static_assert(MmaTile::kThreads == kLines, "each thread splits a line");

    static constexpr int bytes(int stages) { return 2 * kSplitBytes + stages * kFloatBytes; }
};

// @LiveOperand deps: Operand, lies_across
// Rows of float32 that may be read four at once, along k or across it.
struct LiveOperand {
    const float* data;
    int64_t batch, line;  // from one batch, and from one line of neighbours, to the next
    int across;           // lines are those of one k

    static LiveOperand of(const Operand& from) {
        const bool across = lies_across(from);
        return {static_cast<const float*>(from.data), from.batch, across ? from.inner : from.row,
                across};
    }
};

// @LiveProduct deps: LiveOperand
struct LiveProduct {
    LiveOperand a, b;
    int64_t batches, m, n, k;
};

// @LiveCopies deps: LiveTile, LiveOperand, copy_async
// What one thread copies of every lot of an operand: 16 bytes of each of some lines. In shared
// memory lines along k are rotated, so that what threads read of neighbouring ones does not
// collide.
struct LiveCopies {
    static constexpr int kRows = MmaTile::kM, kDepth = LiveTile::kDepth, kTimes = 4;
    // From line to line of its own in shared memory, in either direction; of k, or of rows.
    static constexpr int kLineBytes = kRows * kDepth * 4 / kTimes;
    const float* from;  // of its first line in the next lot
    int64_t line;       // from line to line of its own
    int left, rows;     // k, and rows, from its first one on that exist
    int place;          // of its first line in a lot
    bool across;

    OPWELD_FN LiveCopies over(const LiveOperand& operand, int64_t batch, int64_t row, int64_t rows,
                              int64_t k, int64_t depth) {
        const int thread = int(threadIdx.x);
        LiveCopies own;
        own.across = operand.across != 0;
        const int chunks = own.across ? kRows / 4 : kDepth / 4;
        const int line = thread / chunks, chunk = thread % chunks;
        own.place = own.across ? line * kRows * 4 + chunk * 16
                               : line * kDepth * 4 + (chunk ^ line % 8) * 16;
        const int64_t own_row = own.across ? chunk * 4 : line;
        const int64_t own_k = own.across ? line : chunk * 4;
        own.rows = int(rows - row < kRows ? rows - row : kRows) - int(own_row);
        own.left = int(depth - own_k);
        own.line = operand.line * (MmaTile::kThreads / chunks);
        const int64_t first = own.across ? (k + own_k) * operand.line + row + own_row
                                         : (row + own_row) * operand.line + k + own_k;
        own.from = operand.data + batch * operand.batch + first;
        return own;
    }
    // Starts the copies of the next lot; what does not exist becomes zero.
    __device__ __forceinline__ void start(unsigned int to) {
        to += place;
        // in the direction of the 16 bytes, and in that of the lines
        const int wanted = across ? rows : left, lines = across ? left : rows;
        const int step = across ? kDepth / kTimes : kRows / kTimes;
        if (wanted >= 4 && lines > (kTimes - 1) * step) {
#pragma unroll
            for (int i = 0; i < kTimes; ++i) copy_async(to + i * kLineBytes, from + i * line, 16);
        } else {
#pragma unroll 1
            for (int i = 0; i < kTimes; ++i) {
                const int count = lines <= i * step || wanted <= 0 ? 0 : wanted < 4 ? wanted : 4;
                copy_async(to + i * kLineBytes, from + (count ? i * line : 0), count * 4);
            }
        }
        // Beyond the last k nothing is read: the pointer stays where something is.
        if (left > kDepth) from += across ? kTimes * line : kDepth;
        left -= kDepth;
    }
};

// @read_line deps: LiveTile, load_vector
// 32 values of k of one row from a lot in shared memory.
OPWELD_FN void read_line(float (&values)[LiveTile::kDepth], const unsigned char* lot, int row,
                         bool across) {
    constexpr int kRows = MmaTile::kM, kDepth = LiveTile::kDepth;
    const auto* floats = reinterpret_cast<const float*>(lot);
    if (across) {
#pragma unroll
        for (int k = 0; k < kDepth; ++k) values[k] = floats[k * kRows + row];
        return;
    }
#pragma unroll
    for (int chunk = 0; chunk < kDepth / 4; ++chunk) {
        const auto four = load_vector<4>(floats + row * kDepth + (chunk ^ row % 8) * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) values[chunk * 4 + i] = four.lane[i];
    }
}

// @split_line deps: LiveTile, exponents, put_split
// Splits a line, its largest value brought to just below 2^15; gives its scale. `needs_fallback`
// becomes 1 where scales of two such lines could not be multiplied, or where more than one value in
// 16, zeros apart, has digits below those that a lower part keeps. NaN shows in the sums.
OPWELD_FN float split_line(unsigned char* to, int row, float (&values)[LiveTile::kDepth],
                           int& needs_fallback) {
    constexpr int kDepth = LiveTile::kDepth;
    // Four at a time: one chain would take as long as all else.
    float most[4] = {}, least[4] = {1.0f, 1.0f, 1.0f, 1.0f};
#pragma unroll
    for (int i = 0; i < kDepth; ++i) most[i % 4] = fmaxf(most[i % 4], fabsf(values[i]));
    const float largest = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]));
    const int exponent = exponent_of(largest), up = lift(exponent);
    if (largest != 0.0f && (exponent < -45 || exponent > 60)) needs_fallback = 1;
    const float scale = power_of_two(up);
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
        values[i] *= scale;
        least[i % 4] = fminf(least[i % 4], fabsf(values[i]));
    }
    if (fminf(fminf(least[0], least[1]), fminf(least[2], least[3])) < 1.0f) {
        int excess = 0;  // of 16 times those that lose digits over all
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            if (values[i] != 0.0f) excess += fabsf(values[i]) < 1.0f ? 15 : -1;
        }
        if (excess > 0) needs_fallback = 1;
    }
#pragma unroll
    for (int chunk = 0; chunk < kDepth / 8; ++chunk) {
        float eight[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) eight[i] = values[chunk * 8 + i];
        put_split(to + MmaTile::place(row, chunk), to + MmaTile::place(row, kDepth / 8 + chunk),
                  eight);
    }
    return power_of_two(-up);
}

// @LiveTask deps: LiveProduct, LiveTile, MmaTask
// A tile, and its part of k in blocks.
struct LiveTask {
    MmaTask at;
    int64_t first, depth;  // k
    int count;             // blocks

    __device__ __forceinline__ LiveTask(const LiveProduct& p, int64_t number, int64_t each)
        : at(MmaTask::of(number, p)) {
        const int64_t wanted = each * LiveTile::kDepth;
        first = at.split * wanted;
        depth = p.k - first < wanted ? p.k - first : wanted;
        count = int((depth + LiveTile::kDepth - 1) / LiveTile::kDepth);
    }
};

// @LiveFeed deps: LiveCopies, LiveTask, read_line, shared_address, split_line
// What a thread that splits does for a task: it copies a share of every lot of a and b to a ring in
// shared memory, and splits a line of each lot.
struct LiveFeed {
    static constexpr int kOfA = MmaTile::kM * LiveTile::kDepth * 4;
    LiveCopies a, b;
    unsigned char* floats;               // the ring
    int stages, waiting, filled, ready;  // lots of it, lots to copy; where to; which is split next

    __device__ __forceinline__ LiveFeed(const LiveProduct& p, const LiveTask& task,
                                        unsigned char* ring, int lots)
        : a(LiveCopies::over(p.a, task.at.batch, task.at.m, p.m, task.first, task.depth)),
          b(LiveCopies::over(p.b, task.at.batch, task.at.n, p.n, task.first, task.depth)),
          floats(ring),
          stages(lots),
          waiting(task.count),
          filled(0),
          ready(0) {}

    __device__ __forceinline__ void start() {
        if (waiting > 0) {
            const unsigned int to = shared_address(floats) + filled * LiveTile::kFloatBytes;
            a.start(to);
            b.start(to + kOfA);
        }
        commit_copies();
        --waiting;
        filled = filled + 1 < stages ? filled + 1 : 0;
    }
    __device__ __forceinline__ void read(float (&values)[LiveTile::kDepth]) {
        const int thread = int(threadIdx.x);
        const bool of_a = thread < MmaTile::kM;
        const unsigned char* lot = floats + ready * LiveTile::kFloatBytes + (of_a ? 0 : kOfA);
        read_line(values, lot, thread % MmaTile::kM, of_a ? a.across : b.across);
        ready = ready + 1 < stages ? ready + 1 : 0;
    }
};

// @live_product_kernel deps: CallState, Faithful, LiveFeed, EpilogueStore, await_stages, give_task, mma_products
// The product, each tile's k in `splits` parts of `each` blocks. `call` learns whether another
// kernel has to make it: operands do not fit, or a sum is not finite.
template <typename Epilogue>
__global__ void __launch_bounds__(MmaTile::kThreads, 1)
    live_product_kernel(LiveProduct p, int splits, int64_t each, int stages,
                        EpilogueStore<Epilogue> sink, CallHead* call) {
    extern __shared__ __align__(128) unsigned char live_memory[];
    constexpr int kLineBytes = LiveTile::kLines * MmaTile::kRowBytes;
    const int thread = int(threadIdx.x), warp = thread / 32;
    const int64_t tasks = MmaTask::count(p, splits);
    int needs_fallback = 0;
    for (int64_t number = blockIdx.x; number < tasks; number += gridDim.x) {
        const LiveTask task(p, number, each);
        LiveFeed feed(p, task, live_memory + 2 * LiveTile::kSplitBytes, stages);
        const auto split = [&](int block) {
            unsigned char* const to = live_memory + block % 2 * LiveTile::kSplitBytes;
            float values[LiveTile::kDepth];
            feed.read(values);
            reinterpret_cast<float*>(to + kLineBytes)[thread] =
                split_line(to, thread, values, needs_fallback);
        };
        MmaSums sums;
        sums.clear();
        const auto multiply = [&](int block) {
            const unsigned char* const lot = live_memory + block % 2 * LiveTile::kSplitBytes;
            MmaSums own;
            own.clear();
            mma_products<Faithful, false>(own, shared_address(lot));
            const auto* scales = reinterpret_cast<const float*>(lot + kLineBytes);
            sums.promote(own, scales, scales + MmaTile::kM);
        };
        for (int i = 0; i < stages; ++i) feed.start();
        await_stages(stages - 1);
        __syncthreads();
        split(0);
#pragma unroll 1
        for (int block = 0; block < task.count; ++block) {
            await_stages(stages - 2);
            __syncthreads();  // what was split is there for all, and what it was made from is free
            feed.start();
            // Of two warps that share a scheduler one multiplies while the other splits.
#pragma unroll 1
            for (int turn = 0; turn < 2; ++turn) {
                if ((turn == 0) == (warp < 4)) {
                    if (block + 1 < task.count) split(block + 1);
                } else {
                    multiply(block);
                }
            }
        }
        if (sums.are_odd()) needs_fallback = 1;
        await_copies<0>();
        __syncthreads();  // memory becomes the result's tile
        auto* tile = reinterpret_cast<float*>(live_memory);
        sums.lay_out(tile);
        __syncthreads();
        give_task(sink, task.at, p, tile);
        __syncthreads();  // the tile becomes stages
    }
    if (needs_fallback) call->again = 1;
}

// @LiveCall deps: CallState, LiveTile, SplitK, Workspace, parts_of_sums
// What a call needs beside the operands.
struct LiveCall {
    SplitK plan;
    CallHead* head;
    float* parts;
    int64_t bytes;

    LiveCall(const Product& p, void* workspace) {
        Workspace space{static_cast<char*>(workspace)};
        head = space.take<CallHead>(1);
        plan = SplitK::choose(p, (p.k + LiveTile::kDepth - 1) / LiveTile::kDepth, 1);
        parts = parts_of_sums(space, p, plan.splits);
        bytes = space.used;
    }
};

// @LiveTiles deps: Faithful, Form, InMemory, LiveCall, LiveProduct, in_parts, launch_fma_product, reads_packets, suits_tensor_cores
// Products of long sums by Kernel, of operands that are read four values at a time; what does not
// fit the split form is left to the float32 kernel.
template <typename Kernel>
struct LiveTiles : Form {
    static constexpr int64_t kLeastDepth = 1024;

    static bool takes(const Product& p) {
        return p.k >= kLeastDepth && suits_tensor_cores<Faithful>(p) && reads_packets<float>(p.a) &&
               reads_packets<float>(p.b) && Kernel::fits();
    }
    static int64_t workspace_bytes(const Product& p, bool) { return LiveCall(p, nullptr).bytes; }
    template <typename Source, typename Epilogue>
    static int launch(const Product& p, const Memory& memory, const Source& source,
                      const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        const LiveCall call(p, memory.workspace);
        const int* again = &call.head->again;
        int error = int(cudaMemsetAsync(call.head, 0, sizeof(CallHead), stream));
        if (error) return error;
        const LiveProduct live{
            LiveOperand::of(p.a), LiveOperand::of(p.b), p.batches, p.m, p.n, p.k};
        error = in_parts(sink, call.plan.splits, call.parts, again, stream, [&](const auto& to) {
            return Kernel::launch(live, call.plan, to, call.head, stream);
        });
        return error ? error : launch_fma_product<float>(p, source, sink, again, stream);
    }
};

// @LiveMma deps: Launch, LiveTiles, live_product_kernel
struct LiveMma {
    // How many stages of float32 there is room for.
    static int stages() {
        int device = 0, room = 0;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        int stages = LiveTile::kMostStages;
        while (stages >= LiveTile::kLeastStages && LiveTile::bytes(stages) > room) --stages;
        return stages;
    }
    static bool fits() { return stages() >= LiveTile::kLeastStages; }
    template <typename Epilogue>
    static int launch(const LiveProduct& p, const SplitK& plan, const EpilogueStore<Epilogue>& sink,
                      CallHead* head, cudaStream_t stream) {
        constexpr int64_t kMostBlocks = 1 << 20;
        const int ready = stages();
        const int64_t tasks = MmaTask::count(p, plan.splits);
        return Launch(tasks < kMostBlocks ? tasks : kMostBlocks, MmaTile::kThreads,
                      LiveTile::bytes(ready), stream)
            .run(live_product_kernel<Epilogue>, p, plan.splits, plan.each, ready, sink, head);
    }
};

}  // namespace op
