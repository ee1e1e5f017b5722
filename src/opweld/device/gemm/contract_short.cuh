// Products of float32 whose sums are short: bound by storing the result. A lane keeps its columns
// of b in registers and goes down the rows of a, which a warp brings to shared memory a few at a
// time; each row's sums go straight to the epilogue. Each sum is one chain of fused multiply-adds
// in the order of k, as in the float32 kernel for any length.

namespace op {

// @ShortSize deps:
struct ShortSize {
    static constexpr int kThreads = 256, kWarps = kThreads / 32;
    static constexpr int64_t kMost = 32;  // terms of a sum
    static constexpr int kRows = 32;      // of a, at a time
    // Rows of a warp: the more, the less often b is read; but all multiprocessors are to have
    // warps.
    static constexpr int kMostRows = 256;
    static constexpr int64_t kWarpsOfEach = 16;  // multiprocessor
    // Floats between rows in shared memory: they stay aligned to 16 bytes, and few lie in one bank.
    static constexpr int kPad = 4;
};

// @ShortTask deps: Product
// The part of the product that one warp makes: neighbouring warps have neighbouring columns.
struct ShortTask {
    int64_t batch, first, end, column;  // rows first <= i < end; a lane's first column

    OPWELD_FN ShortTask of(int64_t task, const Product& p, int rows_each, int lanes) {
        const int64_t strips = (p.n + 32 * lanes - 1) / (32 * lanes);
        const int64_t bands = (p.m + rows_each - 1) / rows_each, band = task / strips % bands;
        const int64_t first = band * rows_each, left = p.m - first;
        const int64_t column = (task % strips * 32 + threadIdx.x % 32) * lanes;
        return {task / strips / bands, first, first + (left < rows_each ? left : rows_each),
                column};
    }
};

// @bring_rows deps: ShortSize, Operand
// `count` rows of a, from its first on, to a warp's shared memory; zeros stand beyond `k`.
// Neighbouring lanes take neighbours along the axis of the smaller stride.
template <int kDepth>
OPWELD_FN void bring_rows(float (&rows)[ShortSize::kRows][kDepth + ShortSize::kPad],
                          const Operand& a, const float* first, int count, int k) {
    const int lane = int(threadIdx.x) % 32;
    const bool along = a.inner <= a.row;
#pragma unroll 4
    for (int i = lane; i < ShortSize::kRows * kDepth; i += 32) {
        const int row = along ? i / kDepth : i % ShortSize::kRows;
        const int at = along ? i % kDepth : i / ShortSize::kRows;
        const bool exists = row < count && at < k;
        rows[row][at] = exists ? first[row * a.row + at * a.inner] : 0.0f;
    }
}

// @short_sums_kernel deps: ShortTask, EpilogueStore, bring_rows, load_vector
// Each warp makes its parts of the product, kLanes columns a lane, of sums of up to kDepth terms.
template <int kDepth, int kLanes, typename Epilogue>
__global__ void __launch_bounds__(ShortSize::kThreads, 1)
    short_sums_kernel(const Product p, const EpilogueStore<Epilogue> sink, const int rows_each,
                      const int64_t tasks) {
    __shared__ __align__(
        16) float memory[ShortSize::kWarps][ShortSize::kRows][kDepth + ShortSize::kPad];
    const int warp = int(threadIdx.x) / 32, depth = int(p.k);
    auto& rows = memory[warp];
    const int64_t step = int64_t(gridDim.x) * ShortSize::kWarps;
    for (int64_t i = int64_t(blockIdx.x) * ShortSize::kWarps + warp; i < tasks; i += step) {
        const ShortTask task = ShortTask::of(i, p, rows_each, kLanes);
        const auto* own =
            static_cast<const float*>(p.b.data) + task.batch * p.b.batch + task.column * p.b.row;
        float b[kDepth][kLanes];
#pragma unroll
        for (int k = 0; k < kDepth; ++k)
#pragma unroll
            for (int j = 0; j < kLanes; ++j) {
                const bool exists = k < depth && task.column + j < p.n;
                b[k][j] = exists ? own[j * p.b.row + k * p.b.inner] : 0.0f;
            }
        const auto* a = static_cast<const float*>(p.a.data) + task.batch * p.a.batch;
        for (int64_t first = task.first; first < task.end; first += ShortSize::kRows) {
            const int64_t left = task.end - first;
            const int count = int(left < ShortSize::kRows ? left : ShortSize::kRows);
            __syncwarp();  // all have read the rows before
            bring_rows<kDepth>(rows, p.a, a + first * p.a.row, count, depth);
            __syncwarp();
            if (task.column >= p.n) continue;
            int64_t at = (task.batch * p.m + first) * p.n + task.column;
#pragma unroll 1
            for (int row = 0; row < count; ++row, at += p.n) {
                float sums[kLanes] = {};
#pragma unroll
                for (int k = 0; k < kDepth; k += 4) {
                    const auto four = load_vector<4>(&rows[row][k]);
#pragma unroll
                    for (int j = 0; j < 4 * kLanes; ++j)
                        sums[j % kLanes] = fmaf(four.lane[j / kLanes],
                                                b[k + j / kLanes][j % kLanes], sums[j % kLanes]);
                }
                sink.take(0, at, sums);
            }
        }
    }
}

// @ShortSums deps: Form, Launch, num_multiprocessors, short_sums_kernel
// Products of float32 with sums of up to 32 terms.
template <int kLanes, typename Epilogue>
static int launch_short_sums(const Product& p, const EpilogueStore<Epilogue>& sink,
                             cudaStream_t stream) {
    constexpr int64_t kMostBlocks = 1 << 20, kColumns = 32 * kLanes;
    const int64_t strips = p.batches * ((p.n + kColumns - 1) / kColumns);
    const auto tasks_of = [&](int rows) { return strips * ((p.m + rows - 1) / rows); };
    const int64_t wanted = num_multiprocessors() * ShortSize::kWarpsOfEach;
    int rows_each = ShortSize::kMostRows;
    while (rows_each > ShortSize::kRows && tasks_of(rows_each) < wanted) rows_each /= 2;
    const int64_t tasks = tasks_of(rows_each);
    const int64_t blocks = (tasks + ShortSize::kWarps - 1) / ShortSize::kWarps;
    const auto kernel = p.k <= 16 ? short_sums_kernel<16, kLanes, Epilogue>
                                  : short_sums_kernel<32, kLanes, Epilogue>;
    return Launch(blocks < kMostBlocks ? blocks : kMostBlocks, ShortSize::kThreads, 0, stream)
        .run(kernel, p, sink, rows_each, tasks);
}

struct ShortSums : Form {
    static bool takes(const Product& p) { return p.k <= ShortSize::kMost; }
    template <typename Source, typename Epilogue>
    static int launch(const Product& p, const Memory&, const Source&,
                      const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        constexpr int kLanes = Epilogue::kLanes;
        static_assert(kLanes <= 4, "b does not fit the registers");
        const bool together = sink.paired && p.n % kLanes == 0;
        return together ? launch_short_sums<kLanes>(p, sink, stream)
                        : launch_short_sums<1>(p, sink, stream);
    }
};

}  // namespace op
