// Positions in memory, whose parts may be below zero while the whole is not.

namespace op {

// @difference deps:
// above - below, which is not negative. In one instruction that nvcc does not look into: of
// `i * 64u - r + 63u` as an index, nvcc of CUDA 13.0 widens `i * 64u - r` to 64 bits and adds 63 to
// that, though it is below zero in the first row.
template <typename Above, typename Below>
OPWELD_FN auto difference(Above above, Below below) {
    if constexpr (sizeof(above - below) == 4) {
        uint32_t rest;
        asm("sub.u32 %0, %1, %2;" : "=r"(rest) : "r"(uint32_t(above)), "r"(uint32_t(below)));
        return rest;
    } else {
        return above - below;
    }
}

}  // namespace op
