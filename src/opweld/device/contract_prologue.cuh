// Products whose operand a is computed and not stored: a function of the place gives its values where
// they are split.

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

}  // namespace op
