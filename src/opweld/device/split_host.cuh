// The host's part of splitting operands: what lies where in the workspace, the order of the kernels.

namespace op {

// @Workspace deps: aligned_size
// Hands out parts of one block of memory; without memory it only counts.
struct Workspace {
    char* begin;
    int64_t used = 0;

    template <typename T>
    T* take(int64_t count) {
        T* part = begin ? reinterpret_cast<T*>(begin + used) : nullptr;
        used += aligned_size(count * int64_t(sizeof(T)));
        return part;
    }
};

// @take_held deps: Held, Workspace, kInterval
static Held take_held(Workspace& space, int64_t batches, int64_t n, int64_t k) {
    Held held{};
    held.head = space.take<HeldHead>(1);
    held.column_max = space.take<uint32_t>(k);
    held.scale = space.take<float>(batches * n);
    held.packed = space.take<half>(batches * n * interval_count(k) * (2 * kInterval));
    return held;
}

// @reads_packets deps: Operand
// Whether an operand's neighbours along k may be read four at a time.
template <typename T>
static bool reads_packets(const Operand& from) {
    return from.inner == 1 && from.row % 4 == 0 && from.batch % 4 == 0 &&
           reinterpret_cast<uintptr_t>(from.data) % (4 * sizeof(T)) == 0;
}

// @SplitOperands deps: CallState, Product, take_held, check_held_kernel, refresh_held_kernel, split_kernel, reads_packets
// Float32 operands of a product on tensor cores, split. Shorter sums are left to the CUDA cores: they
// are more exact there, and bound by memory.
[[maybe_unused]] constexpr int64_t kShortestSplit = 32;

struct SplitOperands {
    int64_t intervals, scale_rows, a_batches, b_batches;
    CallState state;
    Held held;
    float* a_scale;  // [a_batches][intervals][scale_rows]
    half* a;

    // Takes its memory from `space`, and b's split copy from `held` where it is held.
    static SplitOperands take(const Product& p, Workspace& space, void* held, bool is_held,
                              int64_t scale_rows) {
        SplitOperands split{};
        Workspace apart{static_cast<char*>(held)};
        split.intervals = interval_count(p.k);
        split.scale_rows = scale_rows;
        split.a_batches = p.a.batch ? p.batches : 1;
        split.b_batches = p.b.batch ? p.batches : 1;
        split.state.head = space.take<CallHead>(1);
        split.state.column_max = space.take<uint32_t>(p.k);
        split.state.row_max = space.take<uint32_t>(p.batches * p.n);
        split.state.row_sum = space.take<unsigned long long>(p.batches * p.n);
        split.a_scale = space.take<float>(p.batches * split.intervals * scale_rows);
        split.a = space.take<half>(p.batches * p.m * split.intervals * (2 * kInterval));
        split.held = take_held(is_held ? apart : space, p.batches, p.n, p.k);
        return split;
    }

    // Makes b's copy where it does not hold, by as many blocks as run at a time, and that of a.
    int make(const Product& p, int changed, cudaStream_t stream) const {
        const Spots of_a{a_batches, p.m, p.k, intervals}, of_b{b_batches, p.n, p.k, intervals};
        check_held_kernel<float><<<1, 1024, 0, stream>>>(p.b, b_batches, p.n, p.k, held, state,
                                                         changed);
        const auto refresh = refresh_held_kernel<float>;
        static const int resident = [&] {
            int device = 0, multiprocessors = 0, blocks = 0;
            cudaGetDevice(&device);
            cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, refresh, 256, 0);
            return multiprocessors * blocks;
        }();
        cudaLaunchAttribute attribute{};
        attribute.id = cudaLaunchAttributeCooperative;
        attribute.val.cooperative = 1;
        cudaLaunchConfig_t config{};
        config.gridDim = dim3((unsigned int)resident);
        config.blockDim = dim3(256);
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = 1;
        const cudaError_t error = cudaLaunchKernelEx(&config, refresh, p.b, of_b, held, state,
                                                     reads_packets<float>(p.b));
        if (error != cudaSuccess) return int(error);
        const unsigned int blocks = (unsigned int)(of_a.bands() * intervals);
        split_kernel<float><<<blocks, 256, 0, stream>>>(p.a, of_a, held, a, a_scale, scale_rows,
                                                        state.head, reads_packets<float>(p.a));
        return int(cudaGetLastError());
    }
};

}  // namespace op
