// Reductions of a weight alone, whose results are kept from call to call. Each call compares
// samples of the weight with those of what is kept; the kernels of the reduction end at once where
// they are alike, and the results are copied to those of the call.

namespace op {

// @KeptHead deps:
// What stands before the kept results, in memory that begins as zeros. Calls on two streams may
// fill it at a time: they write the same bytes, and the samples, which vouch for the rest, last.
struct KeptHead {
    static constexpr int kSamples = 2048;
    int known;  // the samples are those of a weight
    int unused[3];
    unsigned int samples[kSamples];
};

// @kept_sample deps: KeptHead
// Sample i of so many words: spread over them, at no fixed distance, so that a pattern is not met
// again.
OPWELD_FN unsigned int kept_sample(const unsigned int* words, int64_t count, int i) {
    const uint64_t width = uint64_t(count) / KeptHead::kSamples;
    const uint64_t share = uint64_t((unsigned int)(i) * 2654435761u);
    const uint64_t within = share * (width < 0xFFFFFFFFu ? width : 0xFFFFFFFFu);
    return words[uint64_t(i) * uint64_t(count) / KeptHead::kSamples + (within >> 32)];
}

// @check_kept_kernel deps: kept_sample, dependents
// Whether what is kept has to be made anew, for the kernels of this call. One block.
static __global__ void __launch_bounds__(1024)
    check_kept_kernel(const unsigned int* weight, int64_t count, const KeptHead* head, int* stale,
                      int changed) {
    griddepcontrol_wait();
    bool differs = head == nullptr || changed != 0 || head->known == 0;
    for (int i = threadIdx.x; !differs && i < KeptHead::kSamples; i += 1024) {
        differs = kept_sample(weight, count, i) != head->samples[i];
    }
    const int any = __syncthreads_or(differs);
    if (threadIdx.x == 0) *stale = any;
}

// @give_kept_kernel deps: kept_sample, dependents
// Copies kept results to those of the call, and remembers what they were made of.
static __global__ void __launch_bounds__(256)
    give_kept_kernel(const unsigned int* weight, int64_t count, KeptHead* head, const int* stale,
                     const unsigned int* kept, unsigned int* result, int64_t words) {
    griddepcontrol_wait();
    const int64_t first = int64_t(blockIdx.x) * 256 + threadIdx.x;
    for (int64_t i = first; i < words; i += int64_t(gridDim.x) * 256) result[i] = kept[i];
    if (blockIdx.x > 0 || *stale == 0) return;
    for (int i = threadIdx.x; i < KeptHead::kSamples; i += 256) {
        head->samples[i] = kept_sample(weight, count, i);
    }
    __syncthreads();
    __threadfence();
    if (threadIdx.x == 0) head->known = 1;
}

// @KeptRows deps: rows_along, rows_across, reduce
// The rows of a call that finds them stale: its memory begins with whether it does.
constexpr int kStaleBytes = 16;
template <typename F, typename Team, int kLanes, typename Index, typename... T>
__global__ void __launch_bounds__(F::template threads<F, Team>())
    rows_where_stale(const Layout<F> rows, void* call, T*... data) {
    griddepcontrol_wait();
    if (*static_cast<const int*>(call) == 0) return;
    void* const partials = static_cast<char*>(call) + kStaleBytes;
    if constexpr (F::kAcross) {
        across_rows<F, Team, kLanes>(rows, Index(blockIdx.x), partials, data...);
    } else {
        along_rows<F, Team, kLanes>(rows, Index(blockIdx.x), partials, data...);
    }
}
template <typename Base>
struct KeptRows : Base {
    template <typename F, typename Team, int kLanes, typename Index, typename... X>
    static auto kernel() {
        return rows_where_stale<F, Team, kLanes, Index, typename X::T...>;
    }
};

// @KeptWhole deps: KeptRows
// Rows that are not cut, with memory for whether they are stale.
struct KeptWhole : Whole {
    static constexpr bool kCuts = true;
    static int64_t piece(int64_t length, int64_t, int64_t) { return length; }
    template <typename F, typename... X>
    static int64_t bytes(const TensorView*, Types<X...>) {
        return kStaleBytes;
    }
};

// @KeptCut deps: KeptRows, CutRows, finish_rows
template <typename F, int kThreads, typename Index, typename... T>
__global__ void __launch_bounds__(kThreads)
    finish_where_stale(const Layout<F> rows, const void* call, Index pieces, int columns,
                       T*... data) {
    griddepcontrol_wait();
    if (*static_cast<const int*>(call) == 0) return;
    const void* const partials = static_cast<const char*>(call) + kStaleBytes;
    finish_rows<F, kThreads>(rows, partials, pieces, columns, data...);
}
// Rows that are cut in pieces, with memory for whether they are stale before that of the pieces.
template <int kRows, int kLeast, int kMostEach, int kStripsThreads, int kThreads>
struct KeptCut : CutRows<kRows, kLeast, kMostEach, kStripsThreads, kThreads> {
    using Own = CutRows<kRows, kLeast, kMostEach, kStripsThreads, kThreads>;
    template <typename F, typename... X>
    static int64_t bytes(const TensorView* operands, Types<X...> types) {
        return kStaleBytes + Own::template bytes<F>(operands, types);
    }
    template <typename F, typename Index, typename... X, typename... Data>
    static void finish(const Layout<F>& rows, void* call, int64_t pieces, cudaStream_t stream,
                       Data... data) {
        if (pieces <= 1) return;
        const int columns = merged_columns<kThreads>(rows.num_rows, pieces);
        const auto kernel = finish_where_stale<F, kThreads, Index, typename X::T...>;
        const dim3 blocks((rows.num_rows + columns - 1) / columns);
        launch_early(kernel, blocks, kThreads, 0, stream, rows, call, pieces, columns, data...);
    }
};

// @check_kept deps: check_kept_kernel
// Whether what is kept of so many words of a weight is stale, in the first word of `call`; it is
// where there is no head. Returns a CUDA error code.
[[maybe_unused]] static int check_kept(const void* weight, int64_t words, const void* head,
                                       void* call, int changed, void* stream) {
    check_kept_kernel<<<1, 1024, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const unsigned int*>(weight), words, static_cast<const KeptHead*>(head),
        static_cast<int*>(call), changed);
    return int(cudaGetLastError());
}

// @give_kept deps: give_kept_kernel
// Copies a kept result of so many words, and vouches for all that was made anew.
[[maybe_unused]] static int give_kept(const void* weight, int64_t words, void* head,
                                      const void* call, const void* kept, void* result,
                                      int64_t result_words, void* stream) {
    const int64_t blocks = (result_words + 1023) / 1024;
    give_kept_kernel<<<(unsigned int)(blocks < 1      ? 1
                                      : blocks > 1024 ? 1024
                                                      : blocks),
                       256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const unsigned int*>(weight), words, static_cast<KeptHead*>(head),
        static_cast<const int*>(call), static_cast<const unsigned int*>(kept),
        static_cast<unsigned int*>(result), result_words);
    return int(cudaGetLastError());
}

}  // namespace op
