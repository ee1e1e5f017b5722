// How the host starts kernels, and what of the current device it asks for that.

// @atomic_header deps:
#include <atomic>

namespace op {

// @num_multiprocessors deps:
// of the current device
[[maybe_unused]] static int num_multiprocessors() {
    int device = 0, count = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
}

// @Launch deps:
// A launch, with what a kernel may ask for beside blocks, threads and bytes of shared memory.
struct Launch {
    cudaLaunchConfig_t config{};
    cudaLaunchAttribute attributes[2]{};

    Launch(int64_t blocks, int threads, int shared_bytes, cudaStream_t stream) {
        config.gridDim = dim3((unsigned int)blocks);
        config.blockDim = dim3((unsigned int)threads);
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream;
    }
    Launch(const Launch&) = delete;
    cudaLaunchAttribute& add(cudaLaunchAttributeID id) {
        config.attrs = attributes;
        cudaLaunchAttribute& added = attributes[config.numAttrs++];
        added.id = id;
        return added;
    }
    // It may start before the kernels ahead have ended, and waits itself for what they write.
    void start_early() {
        add(cudaLaunchAttributeProgrammaticStreamSerialization)
            .val.programmaticStreamSerializationAllowed = 1;
    }
    // All blocks run at a time: they may wait for each other.
    void run_together() { add(cudaLaunchAttributeCooperative).val.cooperative = 1; }
    void in_clusters(unsigned int blocks) {
        add(cudaLaunchAttributeClusterDimension).val.clusterDim = {blocks, 1, 1};
    }
    // Nothing, where there are no blocks. Returns a CUDA error code.
    template <typename... Parameters, typename... Arguments>
    int run(void (*kernel)(Parameters...), const Arguments&... arguments) {
        if (config.gridDim.x == 0) return 0;
        const int error = config.dynamicSmemBytes ? allow(kernel) : 0;
        return error ? error : run_allowed(kernel, arguments...);
    }
    // The same of a kernel that may have its shared memory.
    template <typename... Parameters, typename... Arguments>
    int run_allowed(void (*kernel)(Parameters...), const Arguments&... arguments) {
        return config.gridDim.x == 0 ? 0 : int(cudaLaunchKernelEx(&config, kernel, arguments...));
    }
    // Lets the kernel have so much shared memory.
    template <typename Kernel>
    int allow(Kernel kernel) const {
        return int(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        int(config.dynamicSmemBytes)));
    }
};

// @OnEachDevice deps: atomic_header
// A number that is found out once on each device.
struct OnEachDevice {
    static constexpr int kMost = 64;
    std::atomic<int> known[kMost]{};  // 0: not yet

    template <typename Find>
    int get(const Find& find) {
        int device = 0;
        cudaGetDevice(&device);
        std::atomic<int>& number = known[device % kMost];
        if (number == 0) number = find();
        return number;
    }
};

}  // namespace op
