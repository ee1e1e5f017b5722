// Whether digits that splitting left out count: asked of the sums. The last part of a value rounds
// at 2^-25, under scales that bring the largest values below 2^15. So in an interval of 64 values
// of k a sum errs by about 2^-25.8 times the norm of what these digits are multiplied by, at most
// 2^-7.8 times the interval's scale, and all digits of a sum are there that is large beside that.
// Sums are small where large values meet zeros: where that drowns the others, too much is missing.

namespace op {

// @largest_scale deps:
// Of a row of a, in `intervals` neighbours that lie `step` apart; 0 where there are none. The four
// lanes that hold sums of the row share them.
[[maybe_unused]] OPWELD_FN float largest_scale(const float* scale, int64_t step, int intervals) {
    float most = 0.0f;
#pragma unroll 4
    for (int i = threadIdx.x % 4; i < intervals; i += 4) most = fmaxf(most, scale[i * step]);
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    return fmaxf(most, __shfl_xor_sync(~0u, most, 2));
}

// @Drowned deps: CallState
// Counts, among the sums of a warp, those that drown. Some are small by chance, where products
// cancel: as many in each stretch of a size, so that of those below 16 times a bound one in 16 lies
// below it, and of these one in 2^i below 2^-i of it. Binary digits below the bound are counted; by
// chance these are an eighth of the sums that are near. Half of them and a margin is not chance.
template <int kParts>
struct Drowned {
    // times the largest scale: below this a sum lacks more than float32 sums, or values of 11 bits,
    // do
    static constexpr float kBound = kParts == 2 ? 0x1p17f : 0x1p5f;
    // The margin of warps that are asked because digits of their operands are missing, and of all
    // warps of a large grid: among many, one is far from what chance gives.
    static constexpr int kMargin = 16, kMarginOfMany = 32;
    int digits = 0, near = 0;

    // A sum before the scale of its column, of a row with this largest scale. Zeros meant zero.
    __device__ __forceinline__ void add(float sum, float most) {
        const uint32_t bound = __float_as_uint(most * kBound) >> 23;
        const uint32_t size = __float_as_uint(fabsf(sum)) >> 23;
        if (sum == 0.0f || size >= bound + 4) return;
        digits += size < bound ? int(bound - size) : 0;
        near += 1;
    }
    // Whether the warp has more of them than chance explains: the same in all lanes.
    __device__ __forceinline__ bool are_many(int margin = kMargin) {
#pragma unroll
        for (int step = 16; step; step /= 2) {
            digits += __shfl_xor_sync(~0u, digits, step);
            near += __shfl_xor_sync(~0u, near, step);
        }
        return 2 * digits > near + 2 * margin;
    }
    __device__ __forceinline__ void tell(CallHead* call) {
        if (are_many() && threadIdx.x % 32 == 0) call->again = 1;
    }
};

}  // namespace op
