// Products whose operand a is computed and not stored: a function of the place gives its values
// where they are split.

namespace op {

// @Computed deps: ReadFour
// The values of an operand by their places in a tensor that would lie without gaps. A Prologue,
// made by the compiler, writes kCount neighbours from place `at` on:
//   prologue(at, values)         float values[kCount], kCount 1 or 4, `at` a multiple of it
template <typename Prologue, typename Index>
struct Computed {
    using T = float;
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

// @contract_computed deps: Computed, contract_from
// As contract, for an operand a whose values `prologue` computes: product.a has no data, but the
// strides of a tensor without gaps.
template <typename Ways, typename Prologue, typename Epilogue>
static int contract_computed(const void* product, const Memory& memory, const Prologue& prologue,
                             const Epilogue& epilogue, int64_t max_offset, bool aligned,
                             void* stream) {
    static_assert(Prologue::kLanes == 4, "four values along k are split together");
    const auto& p = *static_cast<const Product*>(product);
    if (p.batches * p.m * p.k < (1ll << 31) && max_offset < (1ll << 31)) {
        const Computed<Prologue, uint32_t> source{prologue, aligned};
        return contract_from<Ways>(p, memory, source, epilogue, max_offset, aligned, stream);
    }
    const Computed<Prologue, uint64_t> source{prologue, aligned};
    return contract_from<Ways>(p, memory, source, epilogue, max_offset, aligned, stream);
}

}  // namespace op
