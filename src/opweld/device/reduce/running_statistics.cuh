// Running statistics of norms in training, moved towards those of a batch: all of a forward at
// once.

namespace op {

// @RunningStatistics deps: TensorView, type_of_float, type_of_int64_t
// Statistics and what each moves towards, and counts of calls: as many as the parameters of a
// kernel may hold.
struct RunningStatistics {
    static constexpr int kMost = 128;
    float* running[kMost];
    const float* towards[kMost];
    int sizes[kMost];
    int64_t* counts[kMost];
    int num = 0, num_counts = 0;
    float stays, moves;  // what is left of a statistic, and the share of the batch

    static bool fit(const TensorView& own, const TensorView& of_batch) {
        return own.type == type_of<float> && of_batch.type == type_of<float> &&
               num_in_order(own) >= 0 && num_in_order(own) == num_in_order(of_batch);
    }
    static bool counts_calls(const TensorView& x) {
        return x.type == type_of<int64_t> && num_in_order(x) == 1;
    }
    // How many elements lie one behind the other, -1 where they do not or where they are too many.
    static int num_in_order(const TensorView& x) {
        int64_t step = 1;
        for (int a = x.rank; a-- > 0; step *= x.sizes[a]) {
            if (x.sizes[a] != 1 && x.strides[a] != step) return -1;
        }
        return step < 1 << 30 ? int(step) : -1;
    }
    void add(const TensorView& own, const TensorView& of_batch) {
        running[num] = static_cast<float*>(own.data);
        towards[num] = static_cast<const float*>(of_batch.data);
        sizes[num++] = num_in_order(own);
    }
    void add_count(const TensorView& x) { counts[num_counts++] = static_cast<int64_t*>(x.data); }
};

// @move_statistics deps: RunningStatistics, dependents, launch_early
// A block for each statistic and each count.
static __global__ void __launch_bounds__(256)
    move_statistics_kernel(const __grid_constant__ RunningStatistics all) {
    griddepcontrol_wait();
    const int i = int(blockIdx.x);
    if (i >= all.num) {
        if (threadIdx.x == 0) ++*all.counts[i - all.num];
        return;
    }
    float* const running = all.running[i];
    const float* const towards = all.towards[i];
    for (int j = int(threadIdx.x); j < all.sizes[i]; j += 256)
        running[j] = running[j] * all.stays + towards[j] * all.moves;
}
// Nothing where one is not as it must be, which is -1; else a CUDA error code.
[[maybe_unused]] static int move_statistics(const TensorView* running, const TensorView* towards,
                                            int num, const TensorView* counts, int num_counts,
                                            double momentum, void* stream) {
    constexpr int kMost = RunningStatistics::kMost;
    bool fit = true;
    for (int i = 0; i < num; ++i) fit = fit && RunningStatistics::fit(running[i], towards[i]);
    for (int i = 0; i < num_counts; ++i) fit = fit && RunningStatistics::counts_calls(counts[i]);
    if (!fit) return -1;
    for (int first = 0; first < num || first < num_counts; first += kMost) {
        RunningStatistics all{};
        all.stays = float(1 - momentum), all.moves = float(momentum);
        for (int i = first; i < std::min(first + kMost, num); ++i) all.add(running[i], towards[i]);
        for (int i = first; i < std::min(first + kMost, num_counts); ++i) all.add_count(counts[i]);
        launch_early(move_statistics_kernel, dim3(all.num + all.num_counts), 256, 0,
                     static_cast<cudaStream_t>(stream), all);
    }
    return cudaGetLastError();
}

}  // namespace op
