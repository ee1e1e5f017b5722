// Products whose operand a is computed and not stored: a function of the place gives its values where
// they are split. Kernels that read a value more than once take it from memory, where it is written
// first.

namespace op {

// @Computed deps: ReadFour
// The values of an operand by their places in a tensor that would lie without gaps. A Prologue, made
// by the compiler, writes kCount neighbours from place `at` on:
//   prologue(at, values)         float values[kCount], kCount 1 or 4, `at` a multiple of it
template <typename Prologue, typename Index>
struct Computed {
    using T = float;
    static constexpr bool kStored = false;
    Prologue prologue;
    bool packed;  // what the prologue reads allows four at once

    template <bool kWhole>
    __device__ __forceinline__ Four four(int64_t at, int64_t inner, int64_t count,
                                         bool packets) const {
        Four four{};
        if constexpr (!kWhole) {
            if (!packets || count < 4) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    if (i < count) four.x[i] = one(at + i * inner);
                }
                return four;
            }
        }
        prologue(Index(at), four.x);
        return four;
    }
    __device__ __forceinline__ float one(int64_t at) const {
        float value[1];
        prologue(Index(at), value);
        return value[0];
    }
};

// @write_computed deps: Computed
// Writes the values of an operand of `count` places to memory.
template <typename Source>
static __global__ void __launch_bounds__(256)
    write_computed_kernel(const Source source, float* __restrict__ to, const int64_t count) {
    for (int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x; at < count;
         at += int64_t(gridDim.x) * 256)
        to[at] = source.one(at);
}
template <typename Source>
static int write_computed(const Source& source, float* to, int64_t count, cudaStream_t stream) {
    constexpr int64_t kMostBlocks = 1 << 16;
    const int64_t blocks = (count + 255) / 256;
    if (count == 0) return 0;
    write_computed_kernel<<<(unsigned int)(blocks < kMostBlocks ? blocks : kMostBlocks), 256, 0,
                            stream>>>(source, to, count);
    return int(cudaGetLastError());
}

// @is_split deps: TensorCores, is_skinny, sums_are_short
// Whether a product's operand a is read once, by the pass that splits it.
template <typename Mode>
static bool is_split(const Product& product, bool held) {
    return Mode::kScaled && !is_skinny<Mode>(product, held) && !sums_are_short<Mode>(product) &&
           TensorCores<Mode>::take(product);
}

// @computed_workspace_bytes deps: aligned_size, is_split, workspace_bytes
// As workspace_bytes, with a where it is not split.
template <typename Mode>
static int64_t computed_workspace_bytes(const Product& product, bool held) {
    const int64_t own = aligned_size(workspace_bytes<Mode>(product, held));
    if (is_split<Mode>(product, held)) return own;
    return own + product.batches * product.m * product.k * int64_t(sizeof(float));
}

// @contract_computed deps: Computed, computed_workspace_bytes, contract, write_computed
// As contract, for an operand a whose values `prologue` computes: product.a has no data, but the
// strides of a tensor without gaps. `aligned` and `narrow` are said of what the prologue reads, too.
template <typename Mode, typename Source, typename Epilogue>
static int contract_from(Product product, Memory memory, const Source& source,
                         const Epilogue& epilogue, bool narrow, bool aligned, void* stream) {
    const auto queue = static_cast<cudaStream_t>(stream);
    const bool held = memory.held != nullptr;
    if (is_split<Mode>(product, held)) {
        const auto sink = Sink<Epilogue>::of(epilogue, narrow, aligned,
                                             product.batches * product.m * product.n);
        return TensorCores<Mode>::launch(product, memory, source, sink, queue);
    }
    const int64_t own = aligned_size(workspace_bytes<Mode>(product, held));
    const int64_t count = (product.a.batch ? product.batches : 1) * product.m * product.k;
    auto* const a = reinterpret_cast<float*>(static_cast<char*>(memory.workspace) + own);
    const int error = write_computed(source, a, count, queue);
    if (error) return error;
    product.a.data = a;
    return contract<Mode>(product, memory, epilogue, narrow, aligned, stream);
}
template <typename Mode, typename Prologue, typename Epilogue>
static int contract_computed(const Product& product, const Memory& memory,
                             const Prologue& prologue, const Epilogue& epilogue, bool narrow,
                             bool aligned, void* stream) {
    static_assert(Prologue::kLanes == 4, "four values along k are split together");
    if (narrow) {
        const Computed<Prologue, uint32_t> source{prologue, aligned};
        return contract_from<Mode>(product, memory, source, epilogue, narrow, aligned, stream);
    }
    const Computed<Prologue, uint64_t> source{prologue, aligned};
    return contract_from<Mode>(product, memory, source, epilogue, narrow, aligned, stream);
}

}  // namespace op
