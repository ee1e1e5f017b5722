// The tensor core's instructions of sm_80 and up, one function each. What a lane holds of a matrix
// is as the PTX ISA says under "Matrix Fragments for mma.m16n8k16".

namespace op {

// @IsBfloat16 deps:
template <typename T>
struct IsBfloat16 {
    static constexpr bool value = false;
};

// @bfloat16_is deps: IsBfloat16, bfloat16
template <>
struct IsBfloat16<bfloat16> {
    static constexpr bool value = true;
};

// @mma_16x8x16 deps: IsBfloat16
// sums[16, 8] += a[16, 16] * b[16, 8] of T, half or bfloat16, by a warp.
template <typename T>
OPWELD_FN void mma_16x8x16(float (&sums)[4], const unsigned int (&a)[4],
                           const unsigned int (&b)[2]) {
    if constexpr (IsBfloat16<T>::value) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
}

// @load_matrices deps:
// Four 8x8 matrices of 16-bit elements from shared memory: lane i gives the address of row i % 8 of
// matrix i / 8, of 16 bytes, and is left with elements 2 * (i % 4) and the next of row i / 4 of
// each.
[[maybe_unused]] OPWELD_FN void load_matrices(unsigned int (&words)[4], unsigned int address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}

// @copy_groups deps:
// Ends a group of this thread's copies.
[[maybe_unused]] OPWELD_FN void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits for all but the last kOpen groups of this thread's copies.
template <int kOpen>
OPWELD_FN void await_copies() {
    asm volatile("cp.async.wait_group %0;" : : "n"(kOpen) : "memory");
}

// @copy_async deps: copy_groups
// Starts a copy of 16 bytes from global to shared memory, the first `bytes` of them; the others
// become zero.
[[maybe_unused]] OPWELD_FN void copy_async(unsigned int address, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(from), "r"(bytes)
                 : "memory");
}

// @copy_async_word deps: copy_groups
// Starts a copy of 4 bytes from global to shared memory, which bytes = 0 makes zero.
[[maybe_unused]] OPWELD_FN void copy_async_word(unsigned int address, const void* from, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(address), "l"(from), "r"(bytes)
                 : "memory");
}

}  // namespace op
